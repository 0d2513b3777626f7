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
use crate::images::GivenImage;

/// The images of a column, chunk by chunk.
pub(crate) struct ImageColumn {
    chunks: Chunks,
    name: String,
    /// Of the chunk before.
    images: vec::IntoIter<GivenImage>,
    /// Rows of the chunks so far.
    rows: usize,
}

/// Fields of the structs in which Hugging Face's datasets keep images.
const FIELDS: [&str; 2] = ["bytes", "path"];

impl ImageColumn {
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
    pub(crate) fn next(&mut self, py: Python<'_>) -> PyResult<Option<GivenImage>> {
        loop {
            if let Some(image) = self.images.next() {
                return Ok(Some(image));
            }
            let Some(chunk) = self.chunks.next(py)? else { return Ok(None) };
            let images = images_of(&column_of(chunk, &self.name)?, self.rows)?;
            self.rows += images.len();
            self.images =
                images.into_iter().map(|image| image.unwrap_or(GivenImage::Nothing)).collect::<Vec<_>>().into_iter();
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
fn images_of(array: &dyn Array, first: usize) -> PyResult<Vec<Option<GivenImage>>> {
    Ok(match array.data_type() {
        DataType::Binary => {
            let array = array.as_binary::<i32>();
            of_bytes(array.iter(), std::slice::from_ref(array.values()), first)
        }
        DataType::LargeBinary => {
            let array = array.as_binary::<i64>();
            of_bytes(array.iter(), std::slice::from_ref(array.values()), first)
        }
        DataType::BinaryView => {
            let array = array.as_binary_view();
            of_bytes(array.iter(), array.data_buffers(), first)
        }
        DataType::Utf8 => of_paths(array.as_string::<i32>().iter()),
        DataType::LargeUtf8 => of_paths(array.as_string::<i64>().iter()),
        DataType::Utf8View => of_paths(array.as_string_view().iter()),
        DataType::Struct(_) => of_structs(array.as_struct(), first)?,
        DataType::Dictionary(..) => of_dictionary(array.as_any_dictionary(), first)?,
        DataType::Null => std::iter::repeat_with(|| None).take(array.len()).collect(),
        other => {
            let expected = "binary, text (paths or addresses), or structs of bytes and path";
            return Err(PyTypeError::new_err(format!("a column of {other} holds no images; expected {expected}")));
        }
    })
}

/// For each row the file or address that it names.
fn of_paths<'a>(rows: impl Iterator<Item = Option<&'a str>>) -> Vec<Option<GivenImage>> {
    rows.map(|text| Some(GivenImage::Path(text?.into()))).collect()
}

/// For each row its bytes, without a copy: each keeps its array's buffer alive. Values within a view have no buffer and
/// are copied; they have at most 12 bytes.
fn of_bytes<'a>(
    rows: impl Iterator<Item = Option<&'a [u8]>>,
    buffers: &[Buffer],
    first: usize,
) -> Vec<Option<GivenImage>> {
    let mut images = Vec::new();
    for (value, row) in rows.zip(first..) {
        images.push(value.map(|value| {
            let holder = buffers.iter().find_map(|buffer| {
                let offset = value.as_ptr().addr().checked_sub(buffer.as_ptr().addr())?;
                (offset + value.len() <= buffer.len()).then(|| buffer.slice_with_length(offset, value.len()))
            });
            let bytes = match holder {
                Some(buffer) => Bytes::from_owner(ArrowBytes(buffer)),
                None => Bytes::copy_from_slice(value),
            };
            GivenImage::Bytes(row_name(row), bytes)
        }));
    }
    images
}

/// For each row the image that its key names.
fn of_dictionary(rows: &dyn AnyDictionaryArray, first: usize) -> PyResult<Vec<Option<GivenImage>>> {
    let images = images_of(rows.values(), 0)?;
    let keys = if images.is_empty() { vec![0; rows.len()] } else { rows.normalized_keys() };
    let mut named = Vec::new();
    for (row, key) in keys.into_iter().enumerate() {
        named.push(match images.get(key).filter(|_| rows.keys().is_valid(row)) {
            Some(Some(GivenImage::Bytes(_, bytes))) => Some(GivenImage::Bytes(row_name(first + row), bytes.clone())),
            image => image.cloned().flatten(),
        });
    }
    Ok(named)
}

fn row_name(row: usize) -> String {
    format!("row {row}")
}

/// Structs of bytes and path: the bytes if there are any, under the path's name, else the file.
fn of_structs(rows: &StructArray, first: usize) -> PyResult<Vec<Option<GivenImage>>> {
    let [bytes, paths] = FIELDS.map(|name| match rows.column_by_name(name) {
        Some(field) => images_of(field, first),
        None => Ok(vec![None; rows.len()]),
    });
    let pairs = bytes?.into_iter().zip(paths?).enumerate();
    let images = pairs.map(|(row, pair)| match pair {
        _ if rows.is_null(row) => None,
        (Some(GivenImage::Bytes(_, bytes)), Some(GivenImage::Path(path))) => {
            Some(GivenImage::Bytes(name_of(path), bytes))
        }
        (bytes, path) => bytes.or(path),
    });
    Ok(images.collect())
}

fn name_of(path: PathBuf) -> String {
    path.display().to_string()
}

/// Bytes in an array's buffer.
struct ArrowBytes(Buffer);

impl AsRef<[u8]> for ArrowBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
