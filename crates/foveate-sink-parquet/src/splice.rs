//! Joins Parquet files without decoding them: row groups are copied unchanged.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foveate_sink::SinkError;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

use crate::error::failed;

/// Writes the row groups of `parts`, in order, to `target`, with the first part's schema and metadata.
pub(crate) fn splice(parts: &[PathBuf], target: &Path) -> Result<(), SinkError> {
    let [first, ..] = parts else {
        return Err(SinkError::Misuse("no parts to put together".to_owned()));
    };
    let about = open(first)?.1;
    let about = about.file_metadata();
    let file = File::create(target).map_err(SinkError::io("create", target))?;
    let properties = WriterProperties::builder().set_key_value_metadata(about.key_value_metadata().cloned()).build();
    let schema = about.schema_descr().root_schema_ptr();
    let mut writer =
        SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(|error| failed(target, error))?;
    for part in parts {
        let (file, metadata) = open(part)?;
        append(&mut writer, &file, &metadata).map_err(|error| failed(target, error))?;
    }
    writer.close().map(drop).map_err(|error| failed(target, error))
}

pub(crate) fn open(part: &Path) -> Result<(File, ParquetMetaData), SinkError> {
    let file = File::open(part).map_err(SinkError::io("open", part))?;
    let metadata = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Optional);
    let metadata = metadata.parse_and_finish(&file).map_err(|error| SinkError::damaged(part, error))?;
    Ok((file, metadata))
}

fn append(
    writer: &mut SerializedFileWriter<File>,
    file: &File,
    metadata: &ParquetMetaData,
) -> Result<(), ParquetError> {
    let index = metadata.page_index();
    for (g, group) in metadata.row_groups().iter().enumerate() {
        let mut out = writer.next_row_group()?;
        for (c, column) in group.columns().iter().enumerate() {
            let column = ColumnCloseResult {
                bytes_written: column.compressed_size() as u64,
                rows_written: group.num_rows() as u64,
                metadata: column.clone(),
                bloom_filter: None, // none is ever written
                column_index: index.and_then(|index| index.column_index(g, c)).cloned(),
                offset_index: index.and_then(|index| index.offset_index(g, c)).cloned(),
            };
            out.append_column(file, column)?;
        }
        out.close()?;
    }
    Ok(())
}
