//! The format: one part is one Parquet file.

use std::fs::File;
use std::sync::Arc;

use foveate_sink::parts::{PartFiles, PartFormat, StoredPart};
use foveate_sink::{RunManifest, SinkError, SinkOptions, column_kinds};
use foveate_sink_arrow::table::{check_names, metadata, record_batch, schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;

use crate::compression::{COMPRESSION, codec};
use crate::error::failed;
use crate::schema::{properties, rows_per_group};

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

    fn check_columns(&self, options: &SinkOptions) -> Result<(), SinkError> {
        check_names(&options.columns)
    }

    fn encode(&mut self, part: &StoredPart<'_>, manifest: &RunManifest, files: &PartFiles) -> Result<(), SinkError> {
        let path = &files.vectors;
        let schema = schema(part.dim(), part.element(), part.columns(), &column_kinds(&manifest.fingerprint))?;
        let rows_per_group = rows_per_group(part.dim() * part.element().bytes());
        let properties = properties(rows_per_group, self.compression, part.columns());
        let pairs = metadata(manifest).into_iter().map(|(name, value)| KeyValue::new(name, value)).collect();
        let properties = properties.set_key_value_metadata(Some(pairs)).build();
        let file = File::create(path).map_err(SinkError::io("create", path))?;
        let mut writer =
            ArrowWriter::try_new(file, Arc::clone(&schema), Some(properties)).map_err(|error| failed(path, error))?;
        let mut rows = part.reader();
        while let Some(block) = rows.next_block(BLOCK)? {
            let batch = record_batch(&schema, block, part).map_err(|error| failed(path, error.into()))?;
            writer.write(&batch).map_err(|error| failed(path, error))?;
        }
        writer.close().map(drop).map_err(|error| failed(path, error))
    }
}
