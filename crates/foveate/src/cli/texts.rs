//! Texts that files list.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use foveate::source::container::TableColumn;
use foveate::source::{FetchError, text_of};
use xxhash_rust::xxh3::Xxh3;

use super::exit::Usage;
use super::tables::{column, column_named, id_column, names_of, open_table};

/// Names of a column with texts, in any case.
const TEXT_NAMES: [&str; 7] = ["text", "texts", "caption", "title", "query", "prompt", "sentence"];

/// Texts with their ids, in the order of the input.
#[derive(Default)]
pub(crate) struct TextTable {
    pub(crate) ids: Vec<String>,
    pub(crate) texts: Vec<String>,
}

/// The columns of a table with texts, by their indices.
pub(crate) struct TextColumns {
    pub(crate) texts: usize,
    /// `None` for the number of the row.
    pub(crate) ids: Option<usize>,
}

impl TextTable {
    /// Reads the lines of a file or of standard input (`-`), or the rows of a table, whose columns have these names or
    /// usual ones.
    ///
    /// # Errors
    /// Usage if it cannot be read, or has no such column.
    pub(crate) fn read(path: &Path, texts: Option<&str>, ids: Option<&str>) -> Result<Self, Usage> {
        if is_table(path) {
            return Self::of_rows(path, &mut |all| {
                Ok(TextColumns { texts: text_column(all, texts)?, ids: named_ids(all, ids)? })
            });
        }
        if texts.is_some() || ids.is_some() {
            let why = "columns are those of CSV, Parquet and Arrow files; this file is read line by line";
            return Err(Usage::from(anyhow::anyhow!("cannot read {}: {why}", path.display())));
        }
        Self::of_lines(path).with_context(|| cannot_read(path)).map_err(Usage::from)
    }

    fn of_lines(path: &Path) -> anyhow::Result<Self> {
        let mut bytes = Vec::new();
        if path == Path::new("-") {
            std::io::stdin().read_to_end(&mut bytes)?;
        } else {
            bytes = std::fs::read(path)?;
        }
        let text = text_of(&bytes).context("it is neither UTF-8 nor UTF-16; convert it")?;
        let name = path.display();
        let mut table = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            table.ids.push(format!("{name}:{number}"));
            table.texts.push(line.to_owned());
        }
        Ok(table)
    }

    /// Reads the rows of a table, from the columns that `choose` finds.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn of_rows(
        path: &Path,
        choose: &mut dyn FnMut(&[TableColumn]) -> Result<TextColumns, FetchError>,
    ) -> Result<Self, Usage> {
        Self::rows(path, choose).with_context(|| cannot_read(path)).map_err(Usage::from)
    }

    fn rows(
        path: &Path,
        choose: &mut dyn FnMut(&[TableColumn]) -> Result<TextColumns, FetchError>,
    ) -> anyhow::Result<Self> {
        let mut has_ids = false;
        let mut rows = open_table(path, &mut |all| {
            let TextColumns { texts, ids } = choose(all)?;
            has_ids = ids.is_some();
            Ok(std::iter::once(texts).chain(ids).collect())
        })?;
        let name = path.display();
        let mut table = Self::default();
        while rows.advance()? {
            let number = table.texts.len() + 1;
            let id = if has_ids { rows.text(1)? } else { None };
            table.ids.push(id.unwrap_or_else(|| format!("{name}:{number}")));
            table.texts.push(rows.text(0)?.unwrap_or_default());
        }
        Ok(table)
    }

    /// A digest of all ids and texts.
    pub(crate) fn hash(&self) -> String {
        let mut hash = Xxh3::new();
        for part in self.ids.iter().chain(&self.texts) {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        format!("{:032x}", hash.digest128())
    }
}

/// Returns true for a file that is read by columns.
pub(crate) fn is_table(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    ["csv", "tsv", "parquet", "arrow", "feather"].iter().any(|known| extension == *known)
}

fn text_column(all: &[TableColumn], name: Option<&str>) -> Result<usize, FetchError> {
    if let Some(name) = name {
        return column(all, name);
    }
    column_named(all, &TEXT_NAMES).ok_or_else(|| {
        let known = TEXT_NAMES.join(", ");
        FetchError::NoColumn(format!("name the column of texts, or call it {known}; it has {}", names_of(all)))
    })
}

fn named_ids(all: &[TableColumn], name: Option<&str>) -> Result<Option<usize>, FetchError> {
    match name {
        Some(name) => column(all, name).map(Some),
        None => Ok(id_column(all)),
    }
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", path.display())
}
