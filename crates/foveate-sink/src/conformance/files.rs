//! Folders, compared byte for byte.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Every file below a folder, by relative path.
pub(super) type FileTree = BTreeMap<PathBuf, Vec<u8>>;

pub(super) fn snapshot(folder: &Path) -> FileTree {
    let files = entries(folder).into_iter().filter(|path| path.is_file());
    files.map(|path| (path.strip_prefix(folder).unwrap().to_owned(), fs::read(&path).unwrap())).collect()
}

/// Everything below a folder, each folder before its content.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            found.push(path);
        }
    }
    found
}

pub(super) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for path in entries(from) {
        let target = to.join(path.strip_prefix(from).unwrap());
        if path.is_dir() {
            fs::create_dir_all(target).unwrap();
        } else {
            fs::copy(path, target).unwrap();
        }
    }
}

pub(super) fn same(expected: &FileTree, found: &FileTree, when: &str) {
    assert_eq!(Vec::from_iter(expected.keys()), Vec::from_iter(found.keys()), "files, {when}");
    for (path, bytes) in expected {
        assert!(bytes == &found[path], "{} has other bytes, {when}", path.display());
    }
}
