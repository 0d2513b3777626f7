//! Reads the sink's output.

use std::fs::File;
use std::path::Path;

use arrow_array::RecordBatchReader;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type};
use arrow_schema::{ArrowError, DataType};
use foveate_sink::{Element, RunManifest, SinkError, VectorReader};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;

use crate::ParquetFormat;
use crate::schema::element_field;
use crate::splice::open;

/// Rows in memory at a time, in addition to a page.
const BLOCK: usize = 1024;

impl VectorReader for ParquetFormat {
    fn manifest(&self, path: &Path) -> Result<Option<RunManifest>, SinkError> {
        let metadata = open(path)?.1;
        let mut pairs = metadata.file_metadata().key_value_metadata().into_iter().flatten();
        let json = pairs.find(|pair| pair.key == "foveate.manifest").and_then(|pair| pair.value.as_deref());
        json.map(serde_json::from_str).transpose().map_err(|error| SinkError::damaged(path, error))
    }

    fn for_each(
        &self,
        path: &Path,
        dim: usize,
        element: Element,
        act: &mut dyn FnMut(&str, &[f32]),
    ) -> Result<(), SinkError> {
        let damaged = |error: ParquetError| SinkError::damaged(path, error);
        let file = File::open(path).map_err(SinkError::io("open", path))?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).map_err(damaged)?;
        let mask = ProjectionMask::columns(reader.parquet_schema(), ["id", "embedding"]);
        let reader = reader.with_projection(mask).with_batch_size(BLOCK).build().map_err(damaged)?;
        let vectors = DataType::FixedSizeList(element_field(element), i32::try_from(dim).unwrap_or(i32::MAX));
        let kinds: Vec<_> = reader.schema().fields().iter().map(|field| field.data_type().clone()).collect();
        if kinds != [DataType::Utf8, vectors] {
            let reason =
                format!("its columns id and embedding are not text and {dim} components of {}", element.name());
            return Err(SinkError::damaged(path, reason));
        }
        for batch in reader {
            let batch = batch.map_err(|error: ArrowError| SinkError::damaged(path, error))?;
            let list = batch.column(1).as_fixed_size_list().values();
            let values = match element {
                Element::F32 => list.as_primitive::<Float32Type>().values().to_vec(),
                Element::F16 => list.as_primitive::<Float16Type>().values().iter().map(|half| half.to_f32()).collect(),
            };
            let ids = batch.column(0).as_string::<i32>().iter();
            ids.zip(values.chunks_exact(dim)).for_each(|(id, vector)| act(id.unwrap_or_default(), vector));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Float32Array, RecordBatch};
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
        let error = format.for_each(&path, 1, Element::F32, &mut |_, _| unreachable!()).unwrap_err();
        assert!(matches!(error, SinkError::Damaged { .. }), "{error}");
    }
}
