//! Writing shards as WebDataset names them: `key.jpg`, and `key.json` with the id and the columns.

use std::io::{self, Write};

use foveate_source::container::{ID_COLUMN, MemberWriter, NewMember};
use serde_json::{Map, Value};
use tar::{Builder, EntryType, Header};

/// Begins a shard.
pub(crate) fn create(out: Box<dyn Write + Send>, columns: &[String]) -> io::Result<Box<dyn MemberWriter>> {
    Ok(Box::new(TarWriter { tar: Builder::new(out), columns: columns.to_owned() }))
}

struct TarWriter {
    tar: Builder<Box<dyn Write + Send>>,
    columns: Vec<String>,
}

impl TarWriter {
    /// Adds a file whose header depends on nothing but these arguments.
    fn file(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        self.tar.append_data(&mut header, name, content)
    }
}

impl MemberWriter for TarWriter {
    fn add(&mut self, member: &NewMember<'_>) -> io::Result<()> {
        let values = member.columns.iter().map(|value| value.clone().map_or(Value::Null, Value::String));
        let mut fields: Map<String, Value> = self.columns.iter().cloned().zip(values).collect();
        fields.insert(ID_COLUMN.to_owned(), member.id.into());
        // First, so that it is known before an image of any size.
        self.file(&format!("{}.json", member.key), Value::Object(fields).to_string().as_bytes())?;
        self.file(&format!("{}.{}", member.key, member.extension), member.bytes)
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        self.tar.into_inner()?.flush()
    }
}
