use std::fmt;

use foveate_core::{FaultScope, LimitError};

use crate::ImageFormat;

/// Why an image could not be decoded.
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
    #[error("{name} images are not supported")]
    UnsupportedFormat {
        /// The format's usual name ("AVIF", "HEIC").
        name: &'static str,
    },
    /// A format, or a variant of it, that this decoder cannot read.
    #[error("unsupported {format}: {reason}")]
    Unsupported {
        /// The container.
        format: ImageFormat,
        /// The unsupported property.
        reason: String,
    },
    /// The file ends before its image does.
    #[error("truncated {format}: {reason}{}", if *.format == ImageFormat::Jpeg { " (--allow-truncated accepts what is there)" } else { "" })]
    Truncated {
        /// The container.
        format: ImageFormat,
        /// Where the file ends.
        reason: String,
    },
    /// The content violates the format.
    #[error("corrupt {format}: {reason}")]
    Corrupt {
        /// The container.
        format: ImageFormat,
        /// What is wrong.
        reason: String,
    },
    /// The image exceeds the pixel limits in force.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A cost other than size exceeds its limit (number of scans, memory while decoding).
    #[error("{0}")]
    TooCostly(String),
    /// The backend's library is missing or could not be started, so no image can be decoded.
    #[error("decoder unavailable: {0}")]
    Unavailable(String),
}

impl DecodeError {
    /// Makes a [`DecodeError::Corrupt`] with a library's message put on one line.
    pub fn corrupt(format: ImageFormat, reason: impl fmt::Display) -> Self {
        Self::Corrupt { format, reason: one_line(reason) }
    }

    /// Makes a [`DecodeError::Unsupported`] with a library's message put on one line.
    pub fn unsupported(format: ImageFormat, reason: impl fmt::Display) -> Self {
        Self::Unsupported { format, reason: one_line(reason) }
    }

    /// Makes a [`DecodeError::Truncated`] with a library's message put on one line.
    pub fn truncated(format: ImageFormat, reason: impl fmt::Display) -> Self {
        Self::Truncated { format, reason: one_line(reason) }
    }

    /// How far this error reaches: one item, except for a missing library, which stops the run.
    pub fn scope(&self) -> FaultScope {
        match self {
            Self::Unavailable(_) => FaultScope::Run,
            _ => FaultScope::Item,
        }
    }
}

/// Failure records are single lines, and libraries put line breaks and quotation marks around their messages.
fn one_line(reason: impl fmt::Display) -> String {
    let text = reason.to_string();
    let words: Vec<&str> = text.trim_matches(|c: char| c == '"' || c.is_whitespace()).split_whitespace().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line() {
        let error = DecodeError::corrupt(ImageFormat::Jpeg, "\"bad length: 1\n at  offset 7\"\n");
        assert_eq!(error.to_string(), "corrupt JPEG: bad length: 1 at offset 7");
    }

    #[test]
    fn only_jpeg_is_told_of_the_option_for_truncated_files() {
        let hint = |format| DecodeError::truncated(format, "short").to_string().contains("--allow-truncated");
        assert!(hint(ImageFormat::Jpeg) && !hint(ImageFormat::Png));
    }
}
