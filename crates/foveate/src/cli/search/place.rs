//! What the files of searches may replace.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::anyhow;
use foveate::sink::{OutputNames, SinkOptions};
use foveate_sink_parquet::table_command;

use crate::cli::exit::Usage;

/// A command's table.
pub(super) struct TableKind {
    pub(super) command: &'static str,
    pub(super) columns: &'static [&'static str],
}

pub(super) const NEIGHBORS: TableKind =
    TableKind { command: "neighbors", columns: &["id", "neighbor", "rank", "score"] };
pub(super) const DUPLICATES: TableKind =
    TableKind { command: "duplicates", columns: &["group", "id", "keep", "score", "reason", "width", "height"] };
pub(super) const SIMILAR: TableKind = TableKind { command: "similar", columns: &["query", "id", "rank", "score"] };
pub(super) const CLUSTERS: TableKind = TableKind { command: "clusters", columns: &["id", "cluster", "rank", "score"] };
pub(super) const SAMPLE: TableKind = TableKind { command: "sample", columns: &["id", "rank", "score"] };
const TABLES: [TableKind; 5] = [NEIGHBORS, DUPLICATES, SIMILAR, CLUSTERS, SAMPLE];

/// What every page has near its beginning.
pub(super) const GENERATOR: &str = r#"<meta name="generator" content="foveate search">"#;
/// Bytes of a file that tell what it is.
const START: u64 = 1024;

/// A file that a search writes.
#[derive(Clone, Copy)]
pub(in crate::cli) struct SearchFile<'a> {
    pub(in crate::cli) path: &'a Path,
    /// Whether a file that a search wrote may be replaced.
    pub(in crate::cli) overwrite: bool,
}

impl SearchFile<'_> {
    /// Checks that nothing is at the file's place, or what a search wrote and may be replaced. What another command or
    /// the user made is never replaced.
    pub(in crate::cli) fn check(&self) -> Result<(), Usage> {
        let path = self.path.display();
        // A table there would be taken for the output of an interrupted run, which replaces it in the end.
        let names = OutputNames::new(&SinkOptions::new(self.path));
        let manifest = Some(names.manifest()).filter(|manifest| manifest.exists());
        if let Some(found) = manifest.or_else(|| Some(names.staging()).filter(|staging| staging.is_dir())) {
            let found = found.display();
            return Err(anyhow!("cannot write {path}: {found} belongs to an output of that name; name another").into());
        }
        match is_of_search(self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Ok(true) if self.overwrite => Ok(()),
            Ok(true) => Err(anyhow!("{path} already exists; pass --overwrite to replace it").into()),
            _ => Err(anyhow!("{path} already exists, and no search wrote it; name another output").into()),
        }
    }
}

/// Returns true if a file is a table or a page of a search.
fn is_of_search(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?.take(START).read_to_end(&mut start)?;
    if start.starts_with(b"PAR1") {
        return Ok(table_command(path).is_ok_and(|command| command.is_some()));
    }
    let start = String::from_utf8_lossy(&start);
    let header = start.lines().next().unwrap_or_default();
    Ok(start.contains(GENERATOR) || TABLES.iter().any(|table| table.columns.join(",") == header))
}
