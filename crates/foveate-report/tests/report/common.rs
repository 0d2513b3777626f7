//! A run with made-up numbers, and parts of it.

use std::path::{Path, PathBuf};

use foveate_report::Report;

pub(crate) fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/run")
}

pub(crate) fn report() -> Report {
    Report::read(&fixture()).unwrap()
}

/// Returns the names of the fixture's files.
pub(crate) fn files() -> Vec<String> {
    let entries = std::fs::read_dir(fixture()).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Creates a folder with some of the fixture's files.
pub(crate) fn some(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        std::fs::copy(fixture().join(name), folder.path().join(name)).unwrap();
    }
    folder
}

/// Parses the page as a tree; it is valid XML.
pub(crate) fn tree(html: &str) -> roxmltree::Document<'_> {
    let body = html.strip_prefix("<!DOCTYPE html>").unwrap();
    roxmltree::Document::parse(body).unwrap()
}
