use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float32Array, RecordBatch, StringArray, UInt32Array};
use foveate_sink::{AtomicFile, SinkError};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use crate::error::failed;
use crate::reader::open;

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

/// The metadata entry with the command that wrote a table.
const COMMAND: &str = "foveate.command";

/// Returns the command that wrote the table at `path`; `None` for a file that no [`TableWriter`] wrote.
///
/// # Errors
/// [`SinkError`] if the file is not Parquet, or cannot be read.
pub fn table_command(path: &Path) -> Result<Option<String>, SinkError> {
    let metadata = open(path)?.1;
    let mut pairs = metadata.file_metadata().key_value_metadata().into_iter().flatten();
    Ok(pairs.find(|pair| pair.key == COMMAND).and_then(|pair| pair.value.clone()))
}

/// A file that is being written. The library has a handle of it, because it loses the cause of an error at the end if
/// it has the file itself.
struct TableFile {
    writer: ArrowWriter<File>,
    file: AtomicFile,
}

/// Bytes in memory with which a group of rows ends.
const MOST_GROUP: usize = 32 << 20;

/// Writes a table that is not vectors, in blocks of rows. The file appears when the table is complete.
pub struct TableWriter {
    path: PathBuf,
    command: &'static str,
    names: &'static [&'static str],
    /// `None` until the first block has told the columns' types.
    writer: Option<TableFile>,
}

impl TableWriter {
    /// Writes columns with these names to `path`, which is replaced. [`table_command`] returns `command`.
    pub fn new(path: &Path, command: &'static str, names: &'static [&'static str]) -> Self {
        Self { path: path.to_owned(), command, names, writer: None }
    }

    /// Adds rows. Every block has the same columns, of the same length.
    ///
    /// # Errors
    /// [`SinkError`] if the file cannot be written.
    pub fn write(&mut self, columns: Vec<Column>) -> Result<(), SinkError> {
        let arrays = self.names.iter().copied().zip(columns.into_iter().map(array));
        let batch = RecordBatch::try_from_iter(arrays).map_err(|error| failed(&self.path, error.into()))?;
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let file = AtomicFile::create(&self.path)?;
                let command = KeyValue::new(COMMAND.to_owned(), self.command.to_owned());
                let properties = WriterProperties::builder()
                    .set_compression(Compression::SNAPPY)
                    .set_key_value_metadata(Some(vec![command]))
                    .build();
                let writer = ArrowWriter::try_new(file.handle()?, batch.schema(), Some(properties));
                let writer = writer.map_err(|error| failed(&self.path, error))?;
                none.insert(TableFile { writer, file })
            }
        };
        writer.writer.write(&batch).map_err(|error| failed(&self.path, error))?;
        // A group of rows is in memory until it ends.
        let is_full = writer.writer.memory_size() >= MOST_GROUP;
        if is_full { writer.writer.flush().map_err(|error| failed(&self.path, error)) } else { Ok(()) }
    }

    /// Ends the file, which is on the disk then. A table needs a block, which may be empty.
    ///
    /// # Errors
    /// [`SinkError`] if the file cannot be written.
    pub fn finish(self) -> Result<(), SinkError> {
        let Some(TableFile { writer, file }) = self.writer else { return Ok(()) };
        writer.close().map_err(|error| failed(&self.path, error))?;
        file.publish()
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
