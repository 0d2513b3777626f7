use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float32Array, RecordBatch, StringArray, UInt32Array};
use foveate_sink::SinkError;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// UTF-8.
    Text(Vec<String>),
    /// Numbers without sign.
    Count(Vec<u32>),
    /// Numbers with a fraction. NaN is none.
    Score(Vec<f32>),
    /// Yes or no.
    Flag(Vec<bool>),
}

/// Writes a table that is not vectors, in blocks of rows.
pub struct TableWriter {
    path: PathBuf,
    names: &'static [&'static str],
    /// `None` until the first block has told the columns' types.
    writer: Option<ArrowWriter<File>>,
}

impl TableWriter {
    /// Writes columns with these names to `path`, which is replaced.
    pub fn new(path: &Path, names: &'static [&'static str]) -> Self {
        Self { path: path.to_owned(), names, writer: None }
    }

    /// Adds rows. Every block has the same columns, of the same length.
    ///
    /// # Errors
    /// [`SinkError`] if the file cannot be written.
    pub fn write(&mut self, columns: Vec<Column>) -> Result<(), SinkError> {
        let damaged = |error: ParquetError| SinkError::damaged(&self.path, error);
        let arrays = self.names.iter().copied().zip(columns.into_iter().map(array));
        let batch = RecordBatch::try_from_iter(arrays).map_err(|error| damaged(error.into()))?;
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let file = File::create(&self.path).map_err(SinkError::io("create", &self.path))?;
                let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
                none.insert(ArrowWriter::try_new(file, batch.schema(), Some(properties)).map_err(damaged)?)
            }
        };
        writer.write(&batch).map_err(damaged)
    }

    /// Ends the file, which is on the disk then. A table needs a block, which may be empty.
    ///
    /// # Errors
    /// [`SinkError`] if the file cannot be written.
    pub fn finish(self) -> Result<(), SinkError> {
        let Some(writer) = self.writer else { return Ok(()) };
        let file = writer.into_inner().map_err(|error| SinkError::damaged(&self.path, error))?;
        file.sync_all().map_err(SinkError::io("write", &self.path))
    }
}

fn array(column: Column) -> ArrayRef {
    match column {
        Column::Text(texts) => Arc::new(StringArray::from(texts)),
        Column::Count(counts) => Arc::new(UInt32Array::from(counts)),
        Column::Score(scores) => Arc::new(
            scores.into_iter().map(|score| Some(score).filter(|score| !score.is_nan())).collect::<Float32Array>(),
        ),
        Column::Flag(flags) => Arc::new(BooleanArray::from(flags)),
    }
}
