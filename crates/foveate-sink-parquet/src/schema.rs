//! The columns and their storage.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use foveate_sink::{Element, RunManifest, SinkError};
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

/// Approximate size of a row group's vectors in bytes: a writer holds that much in memory, and a reader scans it in one
/// piece.
const GROUP_BYTES: usize = 64 << 20;

/// The vectors' element field, named as the Parquet specification names a list's elements.
pub(crate) fn element_field(element: Element) -> FieldRef {
    let kind = match element {
        Element::F32 => DataType::Float32,
        Element::F16 => DataType::Float16,
    };
    Arc::new(Field::new("element", kind, false))
}

/// The columns: ours, none of them nullable, and the items' own `columns`. Every reader supports these types: the hash
/// is text, because several readers lack unsigned 64-bit integers.
pub(crate) fn schema(dim: usize, element: Element, columns: &[String]) -> Result<SchemaRef, SinkError> {
    let dim = i32::try_from(dim).map_err(|_| SinkError::Misuse(format!("vectors of {dim} components")))?;
    let ours = [
        Field::new("id", DataType::Utf8, false),
        Field::new("embedding", DataType::FixedSizeList(element_field(element), dim), false),
        Field::new("width", DataType::UInt32, false),
        Field::new("height", DataType::UInt32, false),
        Field::new("xxh3", DataType::Utf8, false),
    ];
    debug_assert!(ours.iter().map(|field| field.name().as_str()).eq(OWN));
    let carried = columns.iter().map(|name| Field::new(name, DataType::Utf8, true));
    Ok(Arc::new(Schema::new(ours.into_iter().chain(carried).collect::<Vec<_>>())))
}

/// Names of the columns that every output has.
pub(crate) const OWN: [&str; 5] = ["id", "embedding", "width", "height", "xxh3"];

/// Checks that a table can have these columns beside [`OWN`].
///
/// # Errors
/// [`SinkError::Unsupported`] for a name that is empty or there twice.
pub(crate) fn check_names(columns: &[String]) -> Result<(), SinkError> {
    let refuse = |why: String| Err(SinkError::Unsupported(why));
    for (number, name) in columns.iter().enumerate() {
        if name.is_empty() {
            return refuse("a column without a name".to_owned());
        }
        if OWN.contains(&name.as_str()) {
            return refuse(format!("a column called '{name}', because every output has one of its own"));
        }
        if columns[..number].contains(name) {
            return refuse(format!("two columns called '{name}'"));
        }
    }
    Ok(())
}

/// Rows per row group: a power of two, so that parts of the usual sizes divide evenly.
pub(crate) fn rows_per_group(row_bytes: usize) -> usize {
    let fit = (GROUP_BYTES / row_bytes.max(1)).max(1);
    1 << fit.ilog2()
}

/// The manifest as `foveate.manifest`, and each setting of its fingerprint as `foveate.<name>`.
pub(crate) fn metadata(manifest: &RunManifest) -> Vec<KeyValue> {
    let json = serde_json::to_string(manifest).expect("a manifest is plain data and always has a JSON form");
    let pair = |key: &str, value: &str| KeyValue::new(format!("foveate.{key}"), value.to_owned());
    let settings = manifest.fingerprint.iter().map(|(key, value)| pair(key, value));
    std::iter::once(pair("manifest", &json)).chain(settings).collect()
}

/// Vectors have noise as mantissas, so neither a dictionary nor statistics help; paths compress well, and sizes repeat.
/// The items' own columns are text that often repeats. `compression` applies to every column; without it, only text is
/// compressed.
pub(crate) fn properties(
    rows_per_group: usize,
    compression: Option<Compression>,
    columns: &[String],
) -> WriterPropertiesBuilder {
    let column = |name: &str| ColumnPath::from(name);
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(rows_per_group))
        .set_compression(compression.unwrap_or(Compression::UNCOMPRESSED))
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_column_compression(column("id"), compression.unwrap_or(Compression::SNAPPY))
        .set_column_statistics_enabled(column("id"), EnabledStatistics::Chunk)
        .set_column_dictionary_enabled(column("width"), true)
        .set_column_statistics_enabled(column("width"), EnabledStatistics::Chunk)
        .set_column_dictionary_enabled(column("height"), true)
        .set_column_statistics_enabled(column("height"), EnabledStatistics::Chunk);
    columns.iter().fold(properties, |properties, name| {
        properties
            .set_column_compression(column(name), compression.unwrap_or(Compression::SNAPPY))
            .set_column_dictionary_enabled(column(name), true)
            .set_column_statistics_enabled(column(name), EnabledStatistics::Chunk)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_need_names_of_their_own() {
        let check = |names: &[&str]| check_names(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        assert!(check(&[]).is_ok() && check(&["caption", "Caption", "ID", "a,b.c"]).is_ok());
        for (names, reason) in
            [(&["url", ""][..], "without a name"), (&["id"], "'id'"), (&["a", "b", "a"], "two columns")]
        {
            let error = check(names).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn row_groups_are_about_as_large_as_meant() {
        assert_eq!(rows_per_group(384 * 4), 32_768);
        assert_eq!(rows_per_group(1536 * 4), 8_192);
        assert_eq!(rows_per_group(GROUP_BYTES * 2), 1);
    }
}
