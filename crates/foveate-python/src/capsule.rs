//! The Arrow PyCapsule interface: arrays and streams of other libraries come in without a copy, ours go out.

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{ArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{Array, ArrayReader, ArrayRef, RecordBatchReader, make_array, new_empty_array};
use arrow_schema::{ArrowError, DataType, Schema};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::CStr;
use std::ptr::NonNull;

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

/// An Arrow error as a Python exception.
pub(crate) fn arrow_error(error: ArrowError) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(error.to_string())
}

/// The arrays of an object with `__arrow_c_stream__` or `__arrow_c_array__`.
pub(crate) enum Chunks {
    /// One, until it was taken.
    Array(DataType, Option<ArrayRef>),
    /// Those that a stream has left.
    Stream(ArrayStreamReader),
}

impl Chunks {
    pub(crate) fn import(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if object.hasattr("__arrow_c_array__")? {
            let (schema, array) = object.call_method0("__arrow_c_array__")?.extract()?;
            let array = import_array(&schema, &array)?;
            return Ok(Self::Array(array.data_type().clone(), Some(array)));
        }
        if object.hasattr("__arrow_c_stream__")? {
            let stream = object.call_method0("__arrow_c_stream__")?;
            return import_stream(stream.cast()?).map(Self::Stream);
        }
        let kind = object.get_type();
        Err(PyTypeError::new_err(format!(
            "{kind} is no Arrow data: it has neither __arrow_c_stream__ nor __arrow_c_array__"
        )))
    }

    /// An array of their type without rows.
    pub(crate) fn empty(&self) -> ArrayRef {
        match self {
            Self::Array(kind, _) => new_empty_array(kind),
            Self::Stream(stream) => new_empty_array(ArrayReader::field(stream).data_type()),
        }
    }

    /// Number of rows, if it is known.
    pub(crate) fn len(&self) -> Option<usize> {
        match self {
            Self::Array(_, array) => Some(array.as_ref().map_or(0, |array| array.len())),
            Self::Stream(_) => None,
        }
    }

    /// The next array.
    pub(crate) fn next(&mut self, py: Python<'_>) -> PyResult<Option<ArrayRef>> {
        match self {
            Self::Array(_, array) => Ok(array.take()),
            // A producer may need the interpreter's lock, or wait for a thread that does.
            Self::Stream(stream) => py.detach(|| stream.next()).transpose().map_err(arrow_error),
        }
    }
}

#[allow(unsafe_code, reason = "Arrow's C data interface passes pointers")]
fn import_array(schema: &Bound<'_, PyCapsule>, array: &Bound<'_, PyCapsule>) -> PyResult<ArrayRef> {
    let schema: NonNull<FFI_ArrowSchema> = schema.pointer_checked(Some(SCHEMA))?.cast();
    let array: NonNull<FFI_ArrowArray> = array.pointer_checked(Some(ARRAY))?.cast();
    // SAFETY: the capsules' names say what they point to, and the capsules are alive. The array is moved out, which
    // marks it as released in its capsule; the schema is only read.
    let data = unsafe { from_ffi(FFI_ArrowArray::from_raw(array.as_ptr()), schema.as_ref()) };
    Ok(make_array(data.map_err(arrow_error)?))
}

#[allow(unsafe_code, reason = "Arrow's C stream interface passes pointers")]
fn import_stream(stream: &Bound<'_, PyCapsule>) -> PyResult<ArrayStreamReader> {
    let stream_pointer: NonNull<FFI_ArrowArrayStream> = stream.pointer_checked(Some(STREAM))?.cast();
    // SAFETY: the capsule's name says what it points to, and it is alive. The stream is moved out, which marks it as
    // released in its capsule.
    unsafe { ArrayStreamReader::from_raw(stream_pointer.as_ptr()) }.map_err(arrow_error)
}

/// Hands out a schema.
pub(crate) fn export_schema<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowSchema::try_from(schema).map_err(arrow_error)?, SCHEMA)
}

/// Hands out an array.
pub(crate) fn export_array<'py>(py: Python<'py>, array: FFI_ArrowArray) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, array, ARRAY)
}

/// Hands out a stream of batches.
pub(crate) fn export_stream<'py>(
    py: Python<'py>,
    batches: Box<dyn RecordBatchReader + Send>,
) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(batches), STREAM)
}
