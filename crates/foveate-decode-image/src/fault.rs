use foveate_decode::{DecodeError, ImageFormat};
use image::ImageError;

/// The library's error in our terms.
pub(crate) fn fault(format: ImageFormat, error: ImageError) -> DecodeError {
    match error {
        ImageError::Unsupported(error) => DecodeError::unsupported(format, error),
        ImageError::Limits(error) => DecodeError::TooCostly(format!("{format} takes too much memory: {error}")),
        ImageError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            DecodeError::truncated(format, "the file ends early")
        }
        other => DecodeError::corrupt(format, other),
    }
}
