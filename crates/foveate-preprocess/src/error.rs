use foveate_core::{Stage, UnknownBackend};
use foveate_decode::DecodeError;
use foveate_resize::ResizeError;

/// Why one image was not prepared. The others are not affected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemFault {
    /// Where it failed.
    pub stage: Stage,
    /// What was wrong.
    pub reason: String,
}

/// Why no image can be prepared. Always a run fault: the next one would fail too.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreprocessError {
    /// The decoder cannot be used at all.
    #[error("decode: {0}")]
    Decode(#[from] DecodeError),
    /// The resizer cannot be used at all.
    #[error("resize: {0}")]
    Resize(#[from] ResizeError),
    /// The device or its library is missing. There is no silent fallback to another one.
    #[error("preprocess: device {device} unavailable: {source}")]
    Device {
        /// The device asked for.
        device: String,
        /// Why it cannot be used, and what would help.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A preprocessor that the program does not contain.
    #[error(transparent)]
    Unknown(#[from] UnknownBackend),
    /// The options or the memory are none that it can work with.
    #[error("preprocess: {0}")]
    Unsupported(String),
    /// The device failed.
    #[error("preprocess: {0}")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
}
