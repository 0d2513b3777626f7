//! Errors of a file, in the engine's terms.

use ::tiff::TiffError;
use foveate_decode::{DecodeError, ImageFormat};

pub(super) fn fault(error: TiffError) -> DecodeError {
    match error {
        TiffError::UnsupportedError(error) => unsupported(error.to_string()),
        TiffError::LimitsExceeded => DecodeError::TooCostly("TIFF has too large a directory".to_owned()),
        TiffError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            DecodeError::truncated(ImageFormat::Tiff, "the file ends early")
        }
        other => DecodeError::corrupt(ImageFormat::Tiff, other),
    }
}

pub(super) fn corrupt(reason: &str) -> DecodeError {
    DecodeError::corrupt(ImageFormat::Tiff, reason)
}

pub(super) fn unsupported(what: String) -> DecodeError {
    DecodeError::unsupported(ImageFormat::Tiff, format!("{what}; convert it to PNG, or to RGB with Deflate"))
}
