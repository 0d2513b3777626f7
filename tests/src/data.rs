//! Where test data is.

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

/// A file or folder of the shared data set, which lies beside the checkout and is too large (or not licensed) to be
/// committed.
///
/// # Errors
/// The reason for a trial to be ignored, when it is not there.
pub fn shared(path: &str) -> Result<PathBuf, String> {
    let found = root().join("../shared/data").join(path);
    if found.exists() { Ok(found) } else { Err(format!("../shared/data/{path} is not there")) }
}
