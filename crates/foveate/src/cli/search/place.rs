//! The files of searches.

use std::path::Path;

use foveate_sink_parquet::table_command;

use crate::cli::own_file::OwnFile;

/// A command's table.
pub(super) struct TableKind {
    pub(super) command: &'static str,
    pub(super) columns: &'static [&'static str],
}

pub(super) const NEIGHBORS: TableKind =
    TableKind { command: "neighbors", columns: &["id", "neighbor", "rank", "score"] };
pub(super) const DUPLICATES: TableKind = TableKind {
    command: "duplicates",
    columns: &["group", "id", "keep", "score", "reason", "width", "height", "removable", "kept_by"],
};
pub(super) const SIMILAR: TableKind = TableKind { command: "similar", columns: &["query", "id", "rank", "score"] };
pub(super) const CLUSTERS: TableKind = TableKind { command: "clusters", columns: &["id", "cluster", "rank", "score"] };
pub(super) const SAMPLE: TableKind = TableKind { command: "sample", columns: &["id", "rank", "score"] };
pub(super) const LABEL: TableKind =
    TableKind { command: "label", columns: &["id", "label", "rank", "score", "cosine"] };
pub(super) const ALIGN: TableKind = TableKind { command: "align", columns: &["id", "score"] };
const TABLES: [TableKind; 7] = [NEIGHBORS, DUPLICATES, SIMILAR, CLUSTERS, SAMPLE, LABEL, ALIGN];

/// A text near the beginning of every page.
pub(super) const GENERATOR: &str = r#"<meta name="generator" content="foveate search">"#;

/// A file that a search writes.
pub(in crate::cli) fn search_file(path: &Path, overwrite: bool) -> OwnFile<'_> {
    OwnFile { path, maker: "search", is_own: is_of_search, overwrite }
}

/// Returns true if a file is a table or a page of a search.
fn is_of_search(path: &Path, start: &str) -> bool {
    if start.starts_with("PAR1") {
        return table_command(path).is_ok_and(|command| command.is_some());
    }
    let first = start.lines().next().unwrap_or_default();
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(first).unwrap_or_default();
    start.contains(GENERATOR)
        || TABLES.iter().any(|TableKind { columns, .. }| {
            let is_object = object.len() == columns.len() && columns.iter().all(|&column| object.contains_key(column));
            is_object || columns.join(",") == first
        })
}
