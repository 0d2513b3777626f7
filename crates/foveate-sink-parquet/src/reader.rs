//! Reads the sink's output.

use std::fs::File;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, UInt32Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{ArrowError, DataType, FieldRef, SchemaRef};
use foveate_sink::{ActOnRow, Element, RunManifest, Shape, SinkError, StoredRow, VectorReader};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};

use crate::ParquetFormat;
use crate::schema::{OWN, schema};

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
        let damaged = |error: ParquetError| SinkError::damaged(path, error);
        let file = File::open(path).map_err(SinkError::io("open", path))?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).map_err(damaged)?;
        let schema = schema(shape.dim, shape.element, &shape.columns)?;
        let has_ours = |found: &SchemaRef| found.fields().iter().map(of).eq(schema.fields().iter().map(of));
        if !has_ours(reader.schema()) {
            let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            let reason = format!(
                "its columns are not {} with {} components of {}",
                names.join(", "),
                shape.dim,
                shape.element.name()
            );
            return Err(SinkError::damaged(path, reason));
        }
        for batch in reader.with_batch_size(BLOCK).build().map_err(damaged)? {
            let batch = batch.map_err(|error: ArrowError| SinkError::damaged(path, error))?;
            each_row(path, &batch, shape, act)?;
        }
        Ok(())
    }
}

fn of(field: &FieldRef) -> (&str, &DataType) {
    (field.name(), field.data_type())
}

fn each_row(path: &Path, batch: &RecordBatch, shape: &Shape, act: &mut ActOnRow<'_>) -> Result<(), SinkError> {
    let text = |column: usize| batch.column(column).as_string::<i32>();
    let [width, height] = [2, 3].map(|column| batch.column(column).as_primitive::<UInt32Type>());
    let list = batch.column(1).as_fixed_size_list().values();
    let values = match shape.element {
        Element::F32 => list.as_primitive::<Float32Type>().values().to_vec(),
        Element::F16 => list.as_primitive::<Float16Type>().values().iter().map(|half| half.to_f32()).collect(),
    };
    for (row, vector) in values.chunks_exact(shape.dim).enumerate() {
        let carried = (OWN.len()..batch.num_columns()).map(text);
        let columns: Vec<_> =
            carried.map(|column| column.is_valid(row).then(|| column.value(row).to_owned())).collect();
        let (id, digits) = (text(0).value(row), text(4).value(row));
        let xxh3 = u64::from_str_radix(digits, 16);
        let xxh3 = xxh3.map_err(|_| SinkError::damaged(path, format!("{id} has the hash '{digits}'")))?;
        let (width, height) = (width.value(row), height.value(row));
        act(&StoredRow { id, vector, width, height, xxh3, columns: &columns })?;
    }
    Ok(())
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

    use arrow_array::Float32Array;
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
        let shape = Shape { dim: 1, element: Element::F32, columns: Vec::new() };
        let error = format.for_each(&path, &shape, &mut |_| unreachable!()).unwrap_err();
        assert!(matches!(error, SinkError::Damaged { .. }), "{error}");
    }
}
