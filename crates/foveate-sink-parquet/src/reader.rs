//! Reads the sink's output.

use std::fs::File;
use std::path::Path;

use arrow_schema::ArrowError;
use foveate_sink::{ActOnRow, RunManifest, Shape, SinkError, VectorReader};
use foveate_sink_arrow::table::{check_schema, each_row};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};

use crate::ParquetFormat;

/// Rows in memory at a time, in addition to a page.
const BLOCK: usize = 1024;

impl VectorReader for ParquetFormat {
    fn manifest(&self, path: &Path) -> Result<Option<RunManifest>, SinkError> {
        let metadata = open(path)?.1;
        let mut pairs = metadata.file_metadata().key_value_metadata().into_iter().flatten();
        let json = pairs.find(|pair| pair.key == "foveate.manifest").and_then(|pair| pair.value.as_deref());
        json.map(serde_json::from_str).transpose().map_err(|error| SinkError::damaged(path, error))
    }

    fn for_each(&self, path: &Path, shape: &Shape, act: &mut ActOnRow<'_>) -> Result<(), SinkError> {
        let file = File::open(path).map_err(SinkError::io("open", path))?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| SinkError::damaged(path, error))?;
        check_schema(path, reader.schema(), shape)?;
        let batches = reader.with_batch_size(BLOCK).build().map_err(|error| SinkError::damaged(path, error))?;
        for batch in batches {
            let batch = batch.map_err(|error: ArrowError| SinkError::damaged(path, error))?;
            each_row(path, &batch, shape, act)?;
        }
        Ok(())
    }
}

/// Opens a file and reads its metadata.
pub(crate) fn open(part: &Path) -> Result<(File, ParquetMetaData), SinkError> {
    let file = File::open(part).map_err(SinkError::io("open", part))?;
    let metadata = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Optional);
    let metadata = metadata.parse_and_finish(&file).map_err(|error| SinkError::damaged(part, error))?;
    Ok((file, metadata))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Float32Array, RecordBatch};
    use foveate_sink::{ColumnKinds, Element};
    use parquet::arrow::ArrowWriter;

    use super::*;

    #[test]
    fn a_table_of_another_program_has_no_manifest_and_no_vectors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.parquet");
        let embedding = Arc::new(Float32Array::from(vec![0.5]));
        let batch = RecordBatch::try_from_iter([("embedding", embedding as _)]).unwrap();
        let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let format = ParquetFormat::default();
        assert_eq!(format.manifest(&path).unwrap(), None);
        let shape = Shape { dim: 1, element: Element::F32, columns: Vec::new(), column_kinds: ColumnKinds::new() };
        let error = format.for_each(&path, &shape, &mut |_| unreachable!()).unwrap_err();
        assert!(matches!(error, SinkError::Damaged { .. }), "{error}");
    }
}
