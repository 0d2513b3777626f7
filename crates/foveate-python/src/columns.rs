//! Columns of images in Arrow arrays and tables.

use std::path::PathBuf;
use std::vec;

use arrow_array::cast::AsArray;
use arrow_array::{AnyDictionaryArray, Array, ArrayRef, StructArray};
use arrow_buffer::Buffer;
use arrow_schema::DataType;
use bytes::Bytes;
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;

use crate::capsule::Chunks;
use crate::images::Image;

/// The images of a column, chunk by chunk.
pub(crate) struct Column {
    chunks: Chunks,
    name: String,
    /// Of the chunk before.
    images: vec::IntoIter<Image>,
    /// Rows of the chunks so far.
    rows: usize,
}

/// Fields of the structs in which Hugging Face's datasets keep images.
const FIELDS: [&str; 2] = ["bytes", "path"];

impl Column {
    /// Takes Arrow's arrays and streams as they are; of tables and record batches, their column `name`.
    pub(crate) fn import(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        let chunks = Chunks::import(object)?;
        images_of(&column_of(chunks.empty(), name)?, 0)?;
        Ok(Self { chunks, name: name.to_owned(), images: Vec::new().into_iter(), rows: 0 })
    }

    /// The number of rows, if it is known.
    pub(crate) fn len(&self) -> Option<usize> {
        self.chunks.len()
    }

    /// The next row's image.
    pub(crate) fn next(&mut self, py: Python<'_>) -> PyResult<Option<Image>> {
        loop {
            if let Some(image) = self.images.next() {
                return Ok(Some(image));
            }
            let Some(chunk) = self.chunks.next(py)? else { return Ok(None) };
            let images = images_of(&column_of(chunk, &self.name)?, self.rows)?;
            self.rows += images.len();
            self.images =
                images.into_iter().map(|image| image.unwrap_or(Image::Nothing)).collect::<Vec<_>>().into_iter();
        }
    }
}

fn column_of(array: ArrayRef, name: &str) -> PyResult<ArrayRef> {
    let Some(rows) = array.as_struct_opt() else { return Ok(array) };
    if let Some(column) = rows.column_by_name(name) {
        return Ok(column.clone());
    }
    if FIELDS.iter().any(|field| rows.column_by_name(field).is_some()) {
        return Ok(array);
    }
    let known = rows.column_names().join(", ");
    Err(PyKeyError::new_err(format!("there is no column '{name}'; columns: {known}; pass image=NAME")))
}

/// The images of a chunk whose first row is row `first` of the column.
fn images_of(array: &dyn Array, first: usize) -> PyResult<Vec<Option<Image>>> {
    let paths = |texts: Vec<Option<&str>>| texts.into_iter().map(|text| Some(Image::Path(text?.into()))).collect();
    let bytes = |values: Vec<Option<Bytes>>| {
        let named = values.into_iter().enumerate();
        named.map(|(row, value)| Some(Image::Bytes(row_name(first + row), value?))).collect()
    };
    Ok(match array.data_type() {
        DataType::Binary => {
            let array = array.as_binary::<i32>();
            bytes(shared(array.iter(), std::slice::from_ref(array.values())))
        }
        DataType::LargeBinary => {
            let array = array.as_binary::<i64>();
            bytes(shared(array.iter(), std::slice::from_ref(array.values())))
        }
        DataType::BinaryView => {
            let array = array.as_binary_view();
            bytes(shared(array.iter(), array.data_buffers()))
        }
        DataType::Utf8 => paths(array.as_string::<i32>().iter().collect()),
        DataType::LargeUtf8 => paths(array.as_string::<i64>().iter().collect()),
        DataType::Utf8View => paths(array.as_string_view().iter().collect()),
        DataType::Struct(_) => of_structs(array.as_struct(), first)?,
        DataType::Dictionary(..) => of_dictionary(array.as_any_dictionary(), first)?,
        DataType::Null => std::iter::repeat_with(|| None).take(array.len()).collect(),
        other => {
            let expected = "binary, text (paths or addresses), or structs of bytes and path";
            return Err(PyTypeError::new_err(format!("a column of {other} holds no images; expected {expected}")));
        }
    })
}

/// For each row the image that its key names.
fn of_dictionary(rows: &dyn AnyDictionaryArray, first: usize) -> PyResult<Vec<Option<Image>>> {
    let images = images_of(rows.values(), 0)?;
    let keys = if images.is_empty() { vec![0; rows.len()] } else { rows.normalized_keys() };
    let image = |(row, key): (usize, usize)| match images.get(key).filter(|_| rows.keys().is_valid(row))? {
        Some(Image::Bytes(_, bytes)) => Some(Image::Bytes(row_name(first + row), bytes.clone())),
        image => image.clone(),
    };
    Ok(keys.into_iter().enumerate().map(image).collect())
}

fn row_name(row: usize) -> String {
    format!("row {row}")
}

/// Structs of bytes and path: the bytes if there are any, under the path's name, else the file.
fn of_structs(rows: &StructArray, first: usize) -> PyResult<Vec<Option<Image>>> {
    let field = |name| rows.column_by_name(name).map(|field| images_of(field, first)).transpose();
    let none = || std::iter::repeat_with(|| None).take(rows.len()).collect();
    let [bytes, paths] = FIELDS.map(field);
    let pairs = bytes?.unwrap_or_else(none).into_iter().zip(paths?.unwrap_or_else(none));
    let of = |(row, pair): (usize, (Option<Image>, Option<Image>))| match pair {
        _ if rows.is_null(row) => None,
        (Some(Image::Bytes(_, bytes)), Some(Image::Path(path))) => Some(Image::Bytes(name_of(path), bytes)),
        (bytes, path) => bytes.or(path),
    };
    Ok(pairs.enumerate().map(of).collect())
}

fn name_of(path: PathBuf) -> String {
    path.display().to_string()
}

/// The values without a copy: each keeps its array's buffer alive. Values within a view have no buffer and are copied;
/// they have at most 12 bytes.
fn shared<'a>(values: impl Iterator<Item = Option<&'a [u8]>>, buffers: &[Buffer]) -> Vec<Option<Bytes>> {
    let holder = |value: &[u8]| {
        buffers.iter().find_map(|buffer| {
            let offset = value.as_ptr().addr().checked_sub(buffer.as_ptr().addr())?;
            (offset + value.len() <= buffer.len()).then(|| buffer.slice_with_length(offset, value.len()))
        })
    };
    let share = |value: &[u8]| {
        holder(value).map_or_else(|| Bytes::copy_from_slice(value), |buffer| Bytes::from_owner(Shared(buffer)))
    };
    values.map(|value| value.map(share)).collect()
}

struct Shared(Buffer);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
