//! The table of `merge --join`.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use foveate::sink::hash_file;
use foveate::source::blob::FileBlob;
use foveate::source::container::MemberName;

use super::exit::Usage;

/// A Parquet file in memory, as text.
pub(crate) struct JoinTable {
    /// The names of its columns, without the one of the ids.
    pub(crate) names: Vec<String>,
    /// A digest of the file and of the name of the column with the ids.
    pub(crate) digest: String,
    rows: HashMap<String, Box<[Option<String>]>>,
    /// Ids so far that are not in the table.
    pub(crate) unmatched: Cell<u64>,
}

impl JoinTable {
    pub(crate) fn read(path: &Path, id: &str) -> Result<Self, Usage> {
        Self::of(path, id).with_context(|| format!("cannot join {}", path.display())).map_err(Usage::from)
    }

    fn of(path: &Path, id: &str) -> anyhow::Result<Self> {
        let formats = foveate::backends::containers();
        let blob = Arc::new(FileBlob::open(path, path.display().to_string())?);
        let table = formats.get("parquet")?.open_text(blob, id);
        let (names, mut members) = table.ok_or_else(|| anyhow!("this build reads no tables"))??;
        if let Some(name) = names.iter().find(|name| name.contains(',')) {
            bail!("the name of column '{name}' has a comma; rename it");
        }
        let mut rows = HashMap::new();
        while let Some(row) = members.next()? {
            let MemberName::Id(id) = row.name else { continue };
            if rows.contains_key(&id) {
                bail!("it has the id '{id}' twice; leave one of its rows");
            }
            rows.insert(id, row.columns);
        }
        let digest = format!("{} by {id}", hash_file(path)?);
        Ok(Self { names, digest, rows, unmatched: Cell::new(0) })
    }

    /// Adds the values of the row with this id, or nulls if there is none.
    pub(crate) fn add_to(&self, id: &str, values: &mut Vec<Option<String>>) {
        match self.rows.get(id) {
            Some(row) => values.extend_from_slice(row),
            None => {
                self.unmatched.set(self.unmatched.get() + 1);
                values.resize(values.len() + self.names.len(), None);
            }
        }
    }
}
