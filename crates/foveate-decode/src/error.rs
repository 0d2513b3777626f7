use foveate_core::{BoxError, FaultScope, LimitError};

use crate::ImageFormat;

/// Reason that an image could not be decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The input has no bytes.
    #[error("empty file (0 bytes)")]
    Empty,
    /// The bytes are not an image in a known format; `what` names what they look like, if recognized.
    #[error("not an image{}", .what.map(|w| format!(" (looks like {w})")).unwrap_or_default())]
    NotAnImage {
        /// The format that the bytes look like ("HTML", "PDF").
        what: Option<&'static str>,
    },
    /// An image in a format that no decoder of this engine reads.
    #[error("{name} images are not supported; convert them to PNG or JPEG")]
    UnsupportedFormat {
        /// The format's usual name ("Photoshop", "camera raw").
        name: &'static str,
    },
    /// A format or a variant of it that this decoder cannot read.
    #[error("unsupported {format}")]
    Unsupported {
        /// The container.
        format: ImageFormat,
        /// The property that is not supported.
        source: BoxError,
    },
    /// The file ends before the image does.
    #[error("truncated {format}")]
    Truncated {
        /// The container.
        format: ImageFormat,
        /// The place at which it ends.
        source: BoxError,
    },
    /// The content violates the format.
    #[error("corrupt {format}")]
    Corrupt {
        /// The container.
        format: ImageFormat,
        /// The fault.
        source: BoxError,
    },
    /// The image exceeds the pixel limits in force.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A cost other than size exceeds its limit (number of scans, memory while decoding).
    #[error("{0}")]
    TooCostly(String),
    /// The backend's library is missing or could not be started: nothing can be decoded at all.
    #[error("decoder unavailable")]
    Unavailable(#[source] BoxError),
}

impl DecodeError {
    /// [`DecodeError::Corrupt`], because of a message or of a library's error.
    pub fn corrupt(format: ImageFormat, source: impl Into<BoxError>) -> Self {
        Self::Corrupt { format, source: source.into() }
    }

    /// [`DecodeError::Unsupported`], because of a message or of a library's error.
    pub fn unsupported(format: ImageFormat, source: impl Into<BoxError>) -> Self {
        Self::Unsupported { format, source: source.into() }
    }

    /// [`DecodeError::Truncated`], because of a message or of a library's error.
    pub fn truncated(format: ImageFormat, source: impl Into<BoxError>) -> Self {
        Self::Truncated { format, source: source.into() }
    }

    /// Returns the reach of this error: one item, except for a missing library, which stops the run.
    pub fn scope(&self) -> FaultScope {
        match self {
            Self::Unavailable(_) => FaultScope::Run,
            _ => FaultScope::Item,
        }
    }
}
