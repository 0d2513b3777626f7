use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::ffi::FFI_ArrowArray;
use arrow_array::types::Float32Type;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, PrimitiveArray, RecordBatch, RecordBatchIterator, StringArray, StructArray,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyByteArray, PyCapsule, PyDict};

use crate::capsule::{export_array, export_schema, export_stream};

/// Vectors and errors as an Arrow record batch.
///
/// Columns: `embedding` (FixedSizeList<float32>[dim], null where there is no vector) and `error` (string, null where
/// nothing failed); in a stream of files, `id` (string) comes first. Every library that speaks Arrow's PyCapsule
/// interface reads it without a copy: `pyarrow.record_batch(batch)`, `polars.DataFrame(batch)`, DuckDB's SQL.
#[pyclass(frozen, module = "foveate", name = "Batch")]
pub(crate) struct PyBatch(RecordBatch);

/// The columns of batches, with ids or without.
pub(crate) fn schema(dim: usize, has_ids: bool) -> SchemaRef {
    let embedding = DataType::FixedSizeList(component(), i32::try_from(dim).unwrap_or(i32::MAX));
    let id = has_ids.then(|| Field::new("id", DataType::Utf8, false));
    let others = [Field::new("embedding", embedding, true), Field::new("error", DataType::Utf8, true)];
    Arc::new(Schema::new(id.into_iter().chain(others).collect::<Vec<_>>()))
}

/// The field of a vector's components.
fn component() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::Float32, false))
}

/// Makes a batch of `vectors`, `[n, dim]`. A row for which `is_there` is false is null.
pub(crate) fn batch(
    dim: usize,
    vectors: Vec<f32>,
    is_there: Vec<bool>,
    errors: Vec<Option<String>>,
    ids: Option<Vec<String>>,
) -> Result<RecordBatch, ArrowError> {
    let schema = schema(dim, ids.is_some());
    let size = i32::try_from(dim).unwrap_or(i32::MAX);
    let components = PrimitiveArray::<Float32Type>::new(vectors.into(), None);
    let embeddings = FixedSizeListArray::try_new(component(), size, Arc::new(components), Some(is_there.into()))?;
    let ids = ids.map(|ids| Arc::new(StringArray::from(ids)) as ArrayRef);
    let others: [ArrayRef; 2] = [Arc::new(embeddings), Arc::new(StringArray::from(errors))];
    RecordBatch::try_new(schema, ids.into_iter().chain(others).collect())
}

/// Copies numbers into bytes, which numpy takes over.
pub(crate) fn as_bytes<'py>(py: Python<'py>, numbers: &[f32]) -> PyResult<Bound<'py, PyByteArray>> {
    PyByteArray::new_with(py, size_of_val(numbers), |bytes| {
        for (bytes, number) in bytes.chunks_exact_mut(4).zip(numbers) {
            bytes.copy_from_slice(&number.to_ne_bytes());
        }
        Ok(())
    })
}

impl From<RecordBatch> for PyBatch {
    fn from(batch: RecordBatch) -> Self {
        Self(batch)
    }
}

#[pymethods]
impl PyBatch {
    /// Number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.0.num_rows()
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    /// The type of each column by its name.
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let schema = self.0.schema();
        schema.fields().iter().map(|field| (field.name(), field.data_type().to_string())).into_py_dict(py)
    }

    /// A column: vectors as numpy `[n, dim]` with NaN where there is none, texts as a list.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let column = self.0.column_by_name(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        let Some(vectors) = column.as_fixed_size_list_opt() else {
            return column.as_string::<i32>().iter().collect::<Vec<_>>().into_pyobject(py);
        };
        let dim = vectors.value_length();
        let bytes = as_bytes(py, vectors.values().as_primitive::<Float32Type>().values())?;
        let flat = py.import("numpy")?.call_method1("frombuffer", (bytes, "float32"))?;
        flat.call_method1("reshape", (self.0.num_rows(), dim))
    }

    /// The vectors, `[n, dim]`.
    fn to_numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.__getitem__(py, "embedding")
    }

    /// The vectors, `[n, dim]`, as `numpy.asarray` asks for them.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(false) {
            return Err(PyValueError::new_err("the vectors are copied; numpy.asarray permits that"));
        }
        let vectors = self.to_numpy(py)?;
        dtype.map_or(Ok(vectors.clone()), |dtype| vectors.call_method1("astype", (dtype,)))
    }

    /// A data frame of pandas; vectors are arrays, or None where there is none.
    fn to_pandas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let columns = PyDict::new(py);
        for (field, column) in self.0.schema().fields().iter().zip(self.0.columns()) {
            let values: Vec<_> = self.__getitem__(py, field.name())?.try_iter()?.collect::<PyResult<_>>()?;
            let values = values.into_iter().enumerate();
            columns.set_item(
                field.name(),
                values.map(|(row, value)| column.is_valid(row).then_some(value)).collect::<Vec<_>>(),
            )?;
        }
        py.import("pandas")?.call_method1("DataFrame", (columns,))
    }

    fn __repr__(&self) -> String {
        let schema = self.0.schema();
        let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        format!("<foveate.Batch of {} rows: {}>", self.0.num_rows(), names.join(", "))
    }

    /// The schema as a capsule.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        export_schema(py, &self.0.schema())
    }

    /// The batch as a pair of capsules; a requested schema is ignored, as the interface permits.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        drop(requested_schema);
        let array = FFI_ArrowArray::new(&StructArray::from(self.0.clone()).into_data());
        Ok((export_schema(py, &self.0.schema())?, export_array(py, array)?))
    }

    /// The batch as a stream of one; a requested schema is ignored, as the interface permits.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let batches = RecordBatchIterator::new([Ok(self.0.clone())], self.0.schema());
        export_stream(py, Box::new(batches))
    }
}
