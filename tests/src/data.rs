//! Where the committed test data is; `foveate_testkit::data` has the shared one.

use std::path::PathBuf;

/// The workspace's root folder.
pub fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or(here.clone(), PathBuf::from)
}

/// A committed fixture, always there.
pub fn fixture(path: &str) -> PathBuf {
    root().join("tests/fixtures").join(path)
}
