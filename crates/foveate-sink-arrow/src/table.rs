//! Rows as Arrow tables, which the Parquet sink stores too: columns `id`, `embedding`, `width`, `height`, `xxh3`, then
//! those that the items carry along.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type, Int64Type, UInt32Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, Float16Array, Float32Array, Float64Array, Int64Array,
    RecordBatch, StringArray, UInt32Array,
};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use foveate_core::ColumnKind;
use foveate_sink::parts::{RowBlock, StoredPart};
use foveate_sink::{ActOnRow, ColumnKinds, Element, RunManifest, Shape, SinkError, StoredRow};
use half::f16;

/// Names of the columns that every output has.
const OWN: [&str; 5] = ["id", "embedding", "width", "height", "xxh3"];

/// Checks that a table can have these columns next to `id`, `embedding`, `width`, `height` and `xxh3`.
///
/// # Errors
/// [`SinkError::Unsupported`] for a name that is empty or there twice.
pub fn check_names(columns: &[String]) -> Result<(), SinkError> {
    for (number, name) in columns.iter().enumerate() {
        let problem = if name.is_empty() {
            "a column without a name".to_owned()
        } else if OWN.contains(&name.as_str()) {
            format!("a column called '{name}', because every output has one of its own")
        } else if columns[..number].contains(name) {
            format!("two columns called '{name}'")
        } else {
            continue;
        };
        return Err(SinkError::Unsupported(problem));
    }
    Ok(())
}

/// Returns the columns: ours, none of them nullable, and the items' own `columns` of these `kinds`. Every reader
/// supports these types: the hash is text, because several readers lack unsigned 64-bit integers.
///
/// # Errors
/// [`SinkError::Misuse`] for a `dim` that Arrow has no lists of.
pub fn schema(dim: usize, element: Element, columns: &[String], kinds: &ColumnKinds) -> Result<SchemaRef, SinkError> {
    let dim = i32::try_from(dim).map_err(|_| SinkError::Misuse(format!("vectors of {dim} components")))?;
    let ours = [
        Field::new("id", DataType::Utf8, false),
        Field::new("embedding", DataType::FixedSizeList(element_field(element), dim), false),
        Field::new("width", DataType::UInt32, false),
        Field::new("height", DataType::UInt32, false),
        Field::new("xxh3", DataType::Utf8, false),
    ];
    debug_assert!(ours.iter().map(|field| field.name().as_str()).eq(OWN));
    let carried = columns.iter().map(|name| Field::new(name, data_type(kinds.get(name).copied()), true));
    Ok(Arc::new(Schema::new(ours.into_iter().chain(carried).collect::<Vec<_>>())))
}

fn data_type(kind: Option<ColumnKind>) -> DataType {
    match kind {
        None | Some(ColumnKind::Text) => DataType::Utf8,
        Some(ColumnKind::Integer) => DataType::Int64,
        Some(ColumnKind::Float) => DataType::Float64,
        Some(ColumnKind::Boolean) => DataType::Boolean,
    }
}

/// The vectors' element field, named as the Parquet specification names a list's elements.
fn element_field(element: Element) -> FieldRef {
    let kind = match element {
        Element::F32 => DataType::Float32,
        Element::F16 => DataType::Float16,
    };
    Arc::new(Field::new("element", kind, false))
}

/// Returns the manifest as `foveate.manifest`, and each setting of its fingerprint as `foveate.<name>`.
pub fn metadata(manifest: &RunManifest) -> Vec<(String, String)> {
    let json = serde_json::to_string(manifest).expect("a manifest is plain data and always has a JSON form");
    let settings = manifest.fingerprint.iter().map(|(name, value)| (format!("foveate.{name}"), value.clone()));
    std::iter::once(("foveate.manifest".to_owned(), json)).chain(settings).collect()
}

/// Returns the rows of a block as a batch of [`schema`].
///
/// # Errors
/// [`ArrowError`] if the block does not fit the schema.
pub fn record_batch(schema: &SchemaRef, block: &RowBlock, part: &StoredPart<'_>) -> Result<RecordBatch, ArrowError> {
    let hashes = block.xxh3().iter().map(|hash| format!("{hash:016x}"));
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(block.ids())),
        Arc::new(embeddings(block.vectors(), part.dim(), part.element())?),
        Arc::new(UInt32Array::from_iter_values(block.width().iter().copied())),
        Arc::new(UInt32Array::from_iter_values(block.height().iter().copied())),
        Arc::new(StringArray::from_iter_values(hashes)),
    ];
    for column in 0..part.columns().len() {
        let values = block.column(column);
        columns.push(match schema.field(OWN.len() + column).data_type() {
            DataType::Int64 => Arc::new(values.map(parsed).collect::<Result<Int64Array, _>>()?),
            DataType::Float64 => Arc::new(values.map(parsed).collect::<Result<Float64Array, _>>()?),
            DataType::Boolean => Arc::new(values.map(parsed).collect::<Result<BooleanArray, _>>()?),
            _ => Arc::new(values.collect::<StringArray>()),
        });
    }
    RecordBatch::try_new(Arc::clone(schema), columns)
}

/// A value of a column that is not text.
fn parsed<T: FromStr>(value: Option<&str>) -> Result<Option<T>, ArrowError> {
    let Some(text) = value else { return Ok(None) };
    text.parse().map(Some).map_err(|_| ArrowError::ParseError(format!("'{text}' is of another type")))
}

/// A value of a column that the items carry along, as text.
fn carried(column: &ArrayRef, row: usize) -> Option<String> {
    column.is_valid(row).then(|| match column.data_type() {
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).to_string(),
        DataType::Boolean => column.as_boolean().value(row).to_string(),
        _ => column.as_string::<i32>().value(row).to_owned(),
    })
}

fn embeddings(bytes: &[u8], dim: usize, element: Element) -> Result<FixedSizeListArray, ArrowError> {
    let values: ArrayRef = match element {
        Element::F32 => {
            Arc::new(Float32Array::from_iter_values(bytes.as_chunks().0.iter().map(|&four| f32::from_le_bytes(four))))
        }
        Element::F16 => {
            Arc::new(Float16Array::from_iter_values(bytes.as_chunks().0.iter().map(|&two| f16::from_le_bytes(two))))
        }
    };
    FixedSizeListArray::try_new(element_field(element), dim as i32, values, None)
}

/// Checks that the file at `path` has the columns of `shape`.
///
/// # Errors
/// [`SinkError::Damaged`] if it has others.
pub fn check_schema(path: &Path, found: &Schema, shape: &Shape) -> Result<(), SinkError> {
    let expected = schema(shape.dim, shape.element, &shape.columns, &shape.column_kinds)?;
    if found.fields().iter().map(of).eq(expected.fields().iter().map(of)) {
        return Ok(());
    }
    let names: Vec<_> = expected.fields().iter().map(|field| field.name().as_str()).collect();
    let names = names.join(", ");
    let element = shape.element.name();
    let reason = format!("its columns are not {names} with {} components of {element}", shape.dim);
    Err(SinkError::damaged(path, reason))
}

fn of(field: &FieldRef) -> (&str, &DataType) {
    (field.name(), field.data_type())
}

/// Calls `act` with each row of a batch of [`schema`].
///
/// # Errors
/// [`SinkError::Damaged`] for a hash that is none, and the errors of `act`.
pub fn each_row(path: &Path, batch: &RecordBatch, shape: &Shape, act: &mut ActOnRow<'_>) -> Result<(), SinkError> {
    let ids = batch.column(0).as_string::<i32>();
    let hashes = batch.column(4).as_string::<i32>();
    let [widths, heights] = [2, 3].map(|column| batch.column(column).as_primitive::<UInt32Type>());
    let list = batch.column(1).as_fixed_size_list().values();
    let values = match shape.element {
        Element::F32 => list.as_primitive::<Float32Type>().values().to_vec(),
        Element::F16 => list.as_primitive::<Float16Type>().values().iter().map(|half| half.to_f32()).collect(),
    };
    for (row, vector) in values.chunks_exact(shape.dim).enumerate() {
        let columns: Vec<_> = batch.columns()[OWN.len()..].iter().map(|column| carried(column, row)).collect();
        let id = ids.value(row);
        let digits = hashes.value(row);
        let xxh3 = u64::from_str_radix(digits, 16);
        let xxh3 = xxh3.map_err(|_| SinkError::damaged(path, format!("{id} has the hash '{digits}'")))?;
        let width = widths.value(row);
        let height = heights.value(row);
        act(&StoredRow { id, vector, width, height, xxh3, columns: &columns })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_need_names_of_their_own() {
        let check = |names: &[&str]| check_names(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        assert!(check(&[]).is_ok() && check(&["caption", "Caption", "ID", "a,b.c"]).is_ok());
        for (names, reason) in
            [(&["url", ""][..], "without a name"), (&["id"], "'id'"), (&["a", "b", "a"], "two columns")]
        {
            let error = check(names).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
