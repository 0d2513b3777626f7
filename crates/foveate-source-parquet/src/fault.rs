//! Refusals of both formats.

use std::fmt;

use foveate_core::catch_panic;
use foveate_source::FetchError;
use foveate_source::blob::Blob;

pub(crate) fn damaged(reason: impl fmt::Display) -> FetchError {
    FetchError::Damaged(reason.to_string())
}

/// Reads with the libraries, which panic at many kinds of damage to lengths and offsets.
pub(crate) fn guarded<T>(read: impl FnOnce() -> Result<T, FetchError>) -> Result<T, FetchError> {
    catch_panic(read).unwrap_or_else(|message| Err(damaged(message)))
}

/// Refuses a compression for which the program has no library.
pub(crate) fn compressed(with: &str) -> FetchError {
    FetchError::Refused(format!("it is compressed with {with}, which this program cannot read"))
}

/// The length of a file, in which a table is read from several places.
pub(crate) fn len_of(blob: &dyn Blob) -> Result<u64, FetchError> {
    blob.len().ok_or_else(|| FetchError::Refused("a table cannot be read from a stream; name a file".to_owned()))
}
