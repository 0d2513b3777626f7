//! The format: one part is one Parquet file.

use std::fs::File;
use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeListArray, Float16Array, Float32Array, RecordBatch, StringArray, UInt32Array};
use arrow_schema::SchemaRef;
use foveate_sink::parts::{PartFiles, PartFormat, RowBlock, StoredPart};
use foveate_sink::{Element, RunManifest, SinkError, SinkOptions};
use half::f16;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;

use crate::compression::{COMPRESSION, codec};
use crate::error::failed;
use crate::schema::{check_names, element_field, metadata, properties, rows_per_group, schema};

/// Rows passed to the writer at a time.
const BLOCK: usize = 1024;

/// `x.parquet`: columns `id`, `embedding`, `width`, `height`, `xxh3`, then those that the items carry along, and the
/// manifest in the file's metadata. By default only text is compressed.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParquetFormat {
    compression: Option<Compression>,
}

impl ParquetFormat {
    /// The format with the settings of `options`: `compression` is `none` (the default), `snappy`, `lz4`, `zstd` or
    /// `zstd:LEVEL` (1 to 22; 3 without one).
    ///
    /// # Errors
    /// [`SinkError::Unsupported`] for other settings and values, and for columns whose names are empty,
    /// double, or those of this format.
    pub fn new(options: &SinkOptions) -> Result<Self, SinkError> {
        check_names(&options.columns)?;
        match options.settings(&[COMPRESSION])?.get(COMPRESSION) {
            None => Ok(Self::default()),
            Some(name) => Ok(Self { compression: codec(name)? }),
        }
    }
}

impl PartFormat for ParquetFormat {
    fn name(&self) -> &'static str {
        "parquet"
    }

    fn extension(&self) -> &'static str {
        "parquet"
    }

    fn sidecars(&self) -> &'static [&'static str] {
        &[]
    }

    fn check_columns(&self, options: &SinkOptions) -> Result<(), SinkError> {
        check_names(&options.columns)
    }

    fn encode(&mut self, part: &StoredPart<'_>, manifest: &RunManifest, files: &PartFiles) -> Result<(), SinkError> {
        let path = &files.vectors;
        let schema = schema(part.dim(), part.element(), part.columns())?;
        let rows_per_group = rows_per_group(part.dim() * part.element().bytes());
        let properties = properties(rows_per_group, self.compression, part.columns());
        let properties = properties.set_key_value_metadata(Some(metadata(manifest))).build();
        let file = File::create(path).map_err(SinkError::io("create", path))?;
        let mut writer =
            ArrowWriter::try_new(file, Arc::clone(&schema), Some(properties)).map_err(|error| failed(path, error))?;
        let mut rows = part.reader();
        while let Some(block) = rows.next_block(BLOCK)? {
            let batch = record_batch(&schema, block, part).map_err(|error| failed(path, error))?;
            writer.write(&batch).map_err(|error| failed(path, error))?;
        }
        writer.close().map(drop).map_err(|error| failed(path, error))
    }
}

fn record_batch(schema: &SchemaRef, block: &RowBlock, part: &StoredPart<'_>) -> Result<RecordBatch, ParquetError> {
    let hashes = block.xxh3().iter().map(|hash| format!("{hash:016x}"));
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(block.ids())),
        Arc::new(embeddings(block.vectors(), part.dim(), part.element())?),
        Arc::new(UInt32Array::from_iter_values(block.width().iter().copied())),
        Arc::new(UInt32Array::from_iter_values(block.height().iter().copied())),
        Arc::new(StringArray::from_iter_values(hashes)),
    ];
    let carried = |column| -> ArrayRef { Arc::new(block.column(column).collect::<StringArray>()) };
    columns.extend((0..part.columns().len()).map(carried));
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

fn embeddings(bytes: &[u8], dim: usize, element: Element) -> Result<FixedSizeListArray, ParquetError> {
    let values: ArrayRef = match element {
        Element::F32 => {
            Arc::new(Float32Array::from_iter_values(bytes.as_chunks().0.iter().map(|&four| f32::from_le_bytes(four))))
        }
        Element::F16 => {
            Arc::new(Float16Array::from_iter_values(bytes.as_chunks().0.iter().map(|&two| f16::from_le_bytes(two))))
        }
    };
    Ok(FixedSizeListArray::try_new(element_field(element), dim as i32, values, None)?)
}
