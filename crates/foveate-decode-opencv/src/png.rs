//! What a PNG's header says.

use foveate_core::Size;
use foveate_decode::{DecodeError, ImageFormat};

/// Colour type of gray without alpha.
const GRAY: u8 = 0;

/// The size of a PNG that OpenCV turns into the pixels that Pillow does.
///
/// Those are all but 16-bit gray: Pillow clips it at 255, OpenCV keeps the high byte.
pub(crate) fn readable_size(encoded: &[u8]) -> Result<Size, DecodeError> {
    // Signature, length, and the first chunk: "IHDR", width, height, bit depth, colour type.
    let header =
        encoded.get(12..26).and_then(|bytes| bytes.strip_prefix(b"IHDR")).and_then(|bytes| bytes.first_chunk());
    let Some(&[w3, w2, w1, w0, h3, h2, h1, h0, depth, color]) = header else {
        return Err(DecodeError::corrupt(ImageFormat::Png, "it does not begin with a header"));
    };
    if (depth, color) == (16, GRAY) {
        return Err(DecodeError::unsupported(ImageFormat::Png, "16-bit gray, which OpenCV scales and Pillow clips"));
    }
    Ok(Size::new(u32::from_be_bytes([w3, w2, w1, w0]), u32::from_be_bytes([h3, h2, h1, h0])))
}
