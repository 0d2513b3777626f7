//! Writing images as Hugging Face's `datasets` reads them: a column `image` of `{bytes, path}`.

use std::io::{self, Write};
use std::mem;
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, RecordBatch, StringArray, StructArray};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use foveate_source::container::{ID_COLUMN, MemberWriter, NewMember};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use serde_json::json;

const IMAGE: &str = "image";

/// Bytes of images after which a row group ends.
const GROUP: usize = 32 << 20;

/// Begins a file.
pub(crate) fn create(out: Box<dyn Write + Send>, columns: &[String]) -> io::Result<Box<dyn MemberWriter>> {
    let bytes = Field::new("bytes", DataType::Binary, true);
    let parts = Fields::from(vec![bytes, Field::new("path", DataType::Utf8, true)]);
    let image = Field::new(IMAGE, DataType::Struct(parts.clone()), true);
    let mut fields = vec![Field::new(ID_COLUMN, DataType::Utf8, true), image];
    fields.extend(columns.iter().map(|name| Field::new(name, DataType::Utf8, true)));
    // By which `datasets` decodes the columns.
    let mut features = serde_json::Map::new();
    for field in &fields {
        let feature = match field.name().as_str() {
            IMAGE => json!({ "_type": "Image" }),
            _ => json!({ "dtype": "string", "_type": "Value" }),
        };
        features.insert(field.name().clone(), feature);
    }
    let metadata = ("huggingface".to_owned(), json!({ "info": { "features": features } }).to_string());
    let schema = Arc::new(Schema::new_with_metadata(fields, [metadata]));
    // Images are compressed and all different.
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_created_by("foveate".to_owned())
        .build();
    let writer = ArrowWriter::try_new(out, Arc::clone(&schema), Some(properties))?;
    Ok(Box::new(ParquetWriter { writer, schema, parts, rows: GroupRows::new(columns.len()) }))
}

struct ParquetWriter {
    writer: ArrowWriter<Box<dyn Write + Send>>,
    schema: SchemaRef,
    parts: Fields,
    rows: GroupRows,
}

/// The rows of the next row group.
struct GroupRows {
    ids: Vec<String>,
    images: Vec<Vec<u8>>,
    paths: Vec<String>,
    columns: Vec<Vec<Option<String>>>,
    bytes: usize,
}

impl GroupRows {
    fn new(columns: usize) -> Self {
        let ids = Vec::new();
        let images = Vec::new();
        let paths = Vec::new();
        let columns = vec![Vec::new(); columns];
        Self { ids, images, paths, columns, bytes: 0 }
    }
}

impl ParquetWriter {
    fn end_group(&mut self) -> io::Result<()> {
        let next = GroupRows::new(self.rows.columns.len());
        let rows = mem::replace(&mut self.rows, next);
        if rows.ids.is_empty() {
            return Ok(());
        }
        let bytes: ArrayRef = Arc::new(BinaryArray::from_iter_values(rows.images));
        let paths: ArrayRef = Arc::new(StringArray::from_iter_values(rows.paths));
        let image = StructArray::new(self.parts.clone(), vec![bytes, paths], None);
        let mut arrays: Vec<ArrayRef> = vec![Arc::new(StringArray::from_iter_values(rows.ids)), Arc::new(image)];
        arrays.extend(rows.columns.into_iter().map(|values| Arc::new(StringArray::from(values)) as ArrayRef));
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays).map_err(io::Error::other)?;
        self.writer.write(&batch)?;
        Ok(self.writer.flush()?)
    }
}

impl MemberWriter for ParquetWriter {
    fn add(&mut self, member: &NewMember<'_>) -> io::Result<()> {
        // A batch's binary column has offsets of 31 bits.
        if self.rows.bytes > 0 && self.rows.bytes + member.bytes.len() > GROUP {
            self.end_group()?;
        }
        self.rows.bytes += member.bytes.len();
        self.rows.ids.push(member.id.to_owned());
        self.rows.images.push(member.bytes.to_owned());
        self.rows.paths.push(format!("{}.{}", member.key, member.extension));
        for (column, value) in self.rows.columns.iter_mut().zip(member.columns) {
            column.push(value.clone());
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.end_group()?;
        self.writer.into_inner()?.flush()
    }
}
