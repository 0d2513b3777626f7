use foveate_core::{Stage, UnknownBackend};
use foveate_decode::DecodeError;
use foveate_resize::ResizeError;

/// The reason why one image was not prepared. Other images are not affected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemFault {
    /// The stage that failed.
    pub stage: Stage,
    /// The cause.
    pub reason: String,
}

/// The reason why no image can be prepared. Always a run fault: the next one would fail too.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreprocessError {
    /// The decoder is unusable.
    #[error("decode")]
    Decode(#[from] DecodeError),
    /// The resizer is unusable.
    #[error("resize")]
    Resize(#[from] ResizeError),
    /// The device or its library is missing. There is no silent fallback to another device.
    #[error("preprocess: device {device} unavailable")]
    Device {
        /// The requested device.
        device: String,
        /// The cause and the remedy.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The requested preprocessor is not compiled in.
    #[error(transparent)]
    Unknown(#[from] UnknownBackend),
    /// The preprocessor does not support the options or the memory.
    #[error("preprocess: {0}")]
    Unsupported(String),
    /// The device failed.
    #[error("preprocess")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
}
