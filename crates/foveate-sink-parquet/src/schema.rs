//! The encoding and compression of the columns.

use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

/// Approximate size of a row group's vectors in bytes: a writer holds that much in memory, and a reader scans it in one
/// piece.
const GROUP_BYTES: usize = 64 << 20;

/// Rows per row group: a power of two, so that parts of the usual sizes divide evenly.
pub(crate) fn rows_per_group(row_bytes: usize) -> usize {
    let fit = (GROUP_BYTES / row_bytes.max(1)).max(1);
    1 << fit.ilog2()
}

/// Vectors have noise as mantissas, so neither a dictionary nor statistics help; paths compress well, and sizes repeat.
/// The items' own columns are text that often repeats. `compression` applies to every column; without it, only text is
/// compressed.
pub(crate) fn properties(
    rows_per_group: usize,
    compression: Option<Compression>,
    columns: &[String],
) -> WriterPropertiesBuilder {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(rows_per_group))
        .set_compression(compression.unwrap_or(Compression::UNCOMPRESSED))
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_column_compression(ColumnPath::from("id"), compression.unwrap_or(Compression::SNAPPY))
        .set_column_statistics_enabled(ColumnPath::from("id"), EnabledStatistics::Chunk)
        .set_column_dictionary_enabled(ColumnPath::from("width"), true)
        .set_column_statistics_enabled(ColumnPath::from("width"), EnabledStatistics::Chunk)
        .set_column_dictionary_enabled(ColumnPath::from("height"), true)
        .set_column_statistics_enabled(ColumnPath::from("height"), EnabledStatistics::Chunk);
    columns.iter().fold(properties, |properties, name| {
        properties
            .set_column_compression(ColumnPath::from(name.as_str()), compression.unwrap_or(Compression::SNAPPY))
            .set_column_dictionary_enabled(ColumnPath::from(name.as_str()), true)
            .set_column_statistics_enabled(ColumnPath::from(name.as_str()), EnabledStatistics::Chunk)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_groups_are_about_as_large_as_meant() {
        assert_eq!(rows_per_group(384 * 4), 32_768);
        assert_eq!(rows_per_group(1536 * 4), 8_192);
        assert_eq!(rows_per_group(GROUP_BYTES * 2), 1);
    }
}
