use std::path::PathBuf;

/// The reason why a cache cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The folder or its file cannot be used.
    #[error("cannot open cache {}: {source}", .path.display())]
    Open {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The folder's database is not a cache, or not intact.
    #[error("{} is no cache of foveate, or it is damaged ({reason}); delete it, or use another folder", .path.display())]
    Damaged {
        /// The folder.
        path: PathBuf,
        /// The damage.
        reason: String,
    },
    /// The size is too small for its parts.
    #[error("a cache of {bytes} bytes is too small; it needs at least {least}")]
    TooSmall {
        /// The size.
        bytes: u64,
        /// The smallest size.
        least: u64,
    },
}
