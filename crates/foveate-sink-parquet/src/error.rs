use std::path::Path;

use foveate_sink::SinkError;
use parquet::errors::ParquetError;

/// What the library says; an operating-system error inside it keeps its kind, so that a full disk is told as such.
pub(crate) fn failed(path: &Path, error: ParquetError) -> SinkError {
    let reason = error.to_string();
    if let ParquetError::External(source) = error
        && let Ok(source) = source.downcast::<std::io::Error>()
    {
        return SinkError::io("write", path)(*source);
    }
    SinkError::Format { path: path.to_owned(), reason }
}
