use std::path::Path;

use foveate_sink::SinkError;
use parquet::errors::ParquetError;

/// Converts the library's error. An operating-system error inside it keeps its kind, so that a full disk is reported as
/// such.
pub(crate) fn failed(path: &Path, error: ParquetError) -> SinkError {
    let source = match error {
        ParquetError::External(source) => match source.downcast::<std::io::Error>() {
            Ok(source) => return SinkError::io("write", path)(*source),
            Err(source) => source,
        },
        error => error.into(),
    };
    SinkError::Format { path: path.to_owned(), source }
}
