use std::fmt::Display;

use foveate_decode::{DecodeError, ImageFormat};

/// A file that contradicts itself or the standard.
pub(crate) fn corrupt(reason: impl Display) -> DecodeError {
    DecodeError::corrupt(ImageFormat::Jpeg, reason)
}
