//! The files of a run.

use std::collections::BTreeMap;
use std::path::Path;

use crate::ReportError;
use crate::table::Table;

/// The content of a run's files, read and checked.
#[derive(Debug)]
pub(crate) struct Run {
    tables: BTreeMap<&'static str, Table>,
}

/// A missing file, whose content the report therefore lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its name.
    pub file: &'static str,
    /// The command that creates it, without its arguments: `bench decoders`.
    pub made_by: &'static str,
}

impl Run {
    pub(crate) fn read(folder: &Path) -> Result<Self, ReportError> {
        let mut tables = BTreeMap::new();
        for schema in foveate_schema::ALL {
            if let Some(table) = Table::read(folder, schema)? {
                tables.insert(schema.file, table);
            }
        }
        if tables.is_empty() {
            let looked_for = foveate_schema::ALL.map(|schema| schema.file);
            return Err(ReportError::Nothing { folder: folder.to_owned(), looked_for: looked_for.join(", ") });
        }
        Ok(Self { tables })
    }

    pub(crate) fn missing(&self) -> Vec<Missing> {
        let missing = foveate_schema::ALL.into_iter().filter(|schema| !self.tables.contains_key(schema.file));
        missing.map(|schema| Missing { file: schema.file, made_by: schema.made_by }).collect()
    }

    pub(crate) fn table(&self, file: &str) -> Option<&Table> {
        self.tables.get(file)
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.values()
    }
}
