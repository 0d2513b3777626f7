use foveate_core::BoxError;
use foveate_decode::{DecodeError, ImageFormat};

/// A file that contradicts itself or the standard.
pub(crate) fn corrupt(reason: impl Into<BoxError>) -> DecodeError {
    DecodeError::corrupt(ImageFormat::Jpeg, reason)
}
