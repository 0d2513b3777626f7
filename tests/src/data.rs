//! The location of the committed test data; `foveate_testkit::data` locates the shared data.

use std::path::PathBuf;

/// The workspace's root folder.
pub fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or(here.clone(), PathBuf::from)
}

/// The path of a committed fixture, which always exists.
pub fn fixture(path: &str) -> PathBuf {
    root().join("tests/fixtures").join(path)
}
