use foveate_core::{BoxError, FaultScope, LimitError};

use crate::ImageFormat;

/// Why an image could not be decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// No bytes at all.
    #[error("empty file (0 bytes)")]
    Empty,
    /// The bytes are no image format we know; `what` says what they look like, if that can be told.
    #[error("not an image{}", .what.map(|w| format!(" (looks like {w})")).unwrap_or_default())]
    NotAnImage {
        /// What the bytes look like instead ("HTML", "PDF").
        what: Option<&'static str>,
    },
    /// An image, of a format that no decoder of this engine reads.
    #[error("{name} images are not supported")]
    UnsupportedFormat {
        /// The format's usual name ("AVIF", "HEIC").
        name: &'static str,
    },
    /// A format or a variant of it that this decoder cannot read.
    #[error("unsupported {format}")]
    Unsupported {
        /// The container.
        format: ImageFormat,
        /// What about it is not supported.
        source: BoxError,
    },
    /// The file ends before the image does.
    #[error("truncated {format}")]
    Truncated {
        /// The container.
        format: ImageFormat,
        /// Where it ends.
        source: BoxError,
    },
    /// The content violates the format.
    #[error("corrupt {format}")]
    Corrupt {
        /// The container.
        format: ImageFormat,
        /// What is wrong.
        source: BoxError,
    },
    /// Too large to be decoded under the limits in force.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A cost other than size is over its limit (number of scans, memory while decoding).
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

    /// Every decode error loses one item, except a missing library.
    pub fn scope(&self) -> FaultScope {
        match self {
            Self::Unavailable(_) => FaultScope::Run,
            _ => FaultScope::Item,
        }
    }
}
