//! Reads vectors that other programs wrote.

use std::fs::File;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int32Type, Int64Type, UInt8Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{ArrowError, DataType, Schema};
use foveate_sink::SinkError;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;

/// Rows in memory at a time, in addition to a page.
const BLOCK: usize = 1024;

/// Columns of a table of vectors, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VectorColumns<'a> {
    /// Lists of numbers; `None` for the only such column.
    pub vector: Option<&'a str>,
    /// Text or whole numbers; `None` for `id`, or else the first such column.
    pub id: Option<&'a str>,
}

/// Reads the vectors of a Parquet file that any program wrote: a column of lists, fixed or not, of f16, f32, f64, i8 or
/// u8. Calls `act` with each row's id, which is its number if no column has ids, and its vector; that of a row without
/// one is empty.
///
/// # Errors
/// [`SinkError::Unsupported`] if a column is missing, or there are several; [`SinkError::Damaged`] and
/// [`SinkError::Io`] if the file cannot be read.
pub fn read_vectors(
    path: &Path,
    columns: VectorColumns<'_>,
    act: &mut dyn FnMut(&str, &[f32]),
) -> Result<(), SinkError> {
    let damaged = |error: ParquetError| SinkError::damaged(path, error);
    let file = File::open(path).map_err(SinkError::io("open", path))?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).map_err(damaged)?;
    let vector = vector_column(reader.schema(), columns.vector)?;
    let id = id_column(reader.schema(), columns.id)?;
    // A projection keeps the file's order of columns.
    let chosen = ProjectionMask::roots(reader.parquet_schema(), std::iter::once(vector).chain(id));
    let places = (usize::from(id.is_some_and(|id| id < vector)), usize::from(id.is_some_and(|id| id > vector)));
    let (mut number, mut values) = (0_u64, Vec::new());
    for batch in reader.with_projection(chosen).with_batch_size(BLOCK).build().map_err(damaged)? {
        let batch = batch.map_err(|error: ArrowError| SinkError::damaged(path, error))?;
        let vectors = batch.column(places.0);
        let ids = id.map(|_| batch.column(places.1));
        for row in 0..batch.num_rows() {
            values.clear();
            if vectors.is_valid(row) {
                floats(&list(vectors, row), &mut values);
            }
            let id = ids.and_then(|ids| text(ids, row)).unwrap_or_else(|| number.to_string());
            act(&id, &values);
            number += 1;
        }
    }
    Ok(())
}

fn vector_column(schema: &Schema, name: Option<&str>) -> Result<usize, SinkError> {
    let is_vector = |at: &usize| match schema.field(*at).data_type() {
        DataType::FixedSizeList(of, _) | DataType::List(of) | DataType::LargeList(of) => {
            use DataType::{Float16, Float32, Float64, Int8, UInt8};
            matches!(of.data_type(), Float16 | Float32 | Float64 | Int8 | UInt8)
        }
        _ => false,
    };
    let found: Vec<usize> = (0..schema.fields().len()).filter(is_vector).collect();
    match (name, found.as_slice()) {
        (Some(name), found) => found.iter().copied().find(|&at| schema.field(at).name() == name).ok_or_else(|| {
            SinkError::Unsupported(format!("no column '{name}' of vectors; there is {}", names(schema, found)))
        }),
        (None, [one]) => Ok(*one),
        (None, []) => Err(SinkError::Unsupported("no column has lists of f16, f32, f64, i8 or u8".to_owned())),
        (None, found) => {
            Err(SinkError::Unsupported(format!("several columns have vectors: {}; name one", names(schema, found))))
        }
    }
}

fn id_column(schema: &Schema, name: Option<&str>) -> Result<Option<usize>, SinkError> {
    use DataType::{Int32, Int64, LargeUtf8, UInt32, UInt64, Utf8, Utf8View};
    let is_text = |at: &usize| matches!(schema.field(*at).data_type(), Utf8 | LargeUtf8 | Utf8View);
    let is_id = |at: &usize| is_text(at) || matches!(schema.field(*at).data_type(), Int32 | Int64 | UInt32 | UInt64);
    let of_name = |name: &str| (0..schema.fields().len()).filter(is_id).find(|&at| schema.field(at).name() == name);
    match name {
        Some(name) => of_name(name).map(Some).ok_or_else(|| {
            let ids: Vec<usize> = (0..schema.fields().len()).filter(is_id).collect();
            SinkError::Unsupported(format!("no column '{name}' of ids; there is {}", names(schema, &ids)))
        }),
        None => Ok(of_name("id").or_else(|| (0..schema.fields().len()).find(is_text))),
    }
}

fn names(schema: &Schema, columns: &[usize]) -> String {
    let names: Vec<_> = columns.iter().map(|&at| schema.field(at).name().as_str()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn list(column: &ArrayRef, row: usize) -> ArrayRef {
    match column.data_type() {
        DataType::FixedSizeList(..) => column.as_fixed_size_list().value(row),
        DataType::List(_) => column.as_list::<i32>().value(row),
        _ => column.as_list::<i64>().value(row),
    }
}

/// Adds numbers, with NaN for those that are missing.
fn floats(values: &ArrayRef, out: &mut Vec<f32>) {
    match values.data_type() {
        DataType::Float16 => out.extend(values.as_primitive::<Float16Type>().values().iter().map(|x| x.to_f32())),
        DataType::Float32 => out.extend(values.as_primitive::<Float32Type>().values()),
        DataType::Float64 => out.extend(values.as_primitive::<Float64Type>().values().iter().map(|&x| x as f32)),
        DataType::Int8 => out.extend(values.as_primitive::<Int8Type>().values().iter().map(|&x| f32::from(x))),
        _ => out.extend(values.as_primitive::<UInt8Type>().values().iter().map(|&x| f32::from(x))),
    }
    let first = out.len() - values.len();
    (0..values.len()).filter(|&at| values.is_null(at)).for_each(|at| out[first + at] = f32::NAN);
}

fn text(column: &ArrayRef, row: usize) -> Option<String> {
    let text = || match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).to_owned(),
        DataType::LargeUtf8 => column.as_string::<i64>().value(row).to_owned(),
        DataType::Utf8View => column.as_string_view().value(row).to_owned(),
        DataType::Int32 => column.as_primitive::<Int32Type>().value(row).to_string(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::UInt32 => column.as_primitive::<UInt32Type>().value(row).to_string(),
        _ => column.as_primitive::<UInt64Type>().value(row).to_string(),
    };
    column.is_valid(row).then(text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::builder::{FixedSizeListBuilder, Float64Builder, Int8Builder, ListBuilder};
    use arrow_array::{Int64Array, LargeStringArray, RecordBatch};
    use parquet::arrow::ArrowWriter;

    use super::*;

    #[test]
    fn vectors_of_other_programs_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.parquet");
        let (mut doubles, mut bytes) =
            (ListBuilder::new(Float64Builder::new()), FixedSizeListBuilder::new(Int8Builder::new(), 2));
        for row in 0..3_i8 {
            doubles.values().append_option((row != 1).then_some(0.5));
            doubles.append(row < 2);
            bytes.values().append_slice(&[row, -row]);
            bytes.append(true);
        }
        let columns: [(_, ArrayRef); 4] = [
            ("key", Arc::new(Int64Array::from(vec![7, 8, 9]))),
            ("doubles", Arc::new(doubles.finish())),
            ("bytes", Arc::new(bytes.finish())),
            ("name", Arc::new(LargeStringArray::from(vec![Some("a"), None, Some("c")]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let read = |vector, id| {
            let mut rows = Vec::new();
            read_vectors(&path, VectorColumns { vector, id }, &mut |id, vector| {
                rows.push((id.to_owned(), format!("{vector:?}")));
            })
            .map(|()| rows)
            .map_err(|error| match error {
                SinkError::Unsupported(reason) => reason,
                error => error.to_string(),
            })
        };
        let rows = |rows: [(&str, &str); 3]| Ok(rows.map(|(id, vector)| (id.to_owned(), vector.to_owned())).to_vec());
        assert_eq!(read(Some("bytes"), None), rows([("a", "[0.0, 0.0]"), ("1", "[1.0, -1.0]"), ("c", "[2.0, -2.0]")]));
        assert_eq!(read(Some("doubles"), Some("key")), rows([("7", "[0.5]"), ("8", "[NaN]"), ("9", "[]")]));
        assert_eq!(read(None, None).unwrap_err(), "several columns have vectors: doubles, bytes; name one");
        assert_eq!(read(Some("key"), None).unwrap_err(), "no column 'key' of vectors; there is doubles, bytes");
        assert_eq!(read(Some("bytes"), Some("x")).unwrap_err(), "no column 'x' of ids; there is key, name");
    }
}
