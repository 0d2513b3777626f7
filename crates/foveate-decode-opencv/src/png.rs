//! PNG headers.

use foveate_core::{PixelLimits, Size};
use foveate_decode::{DecodeError, ImageFormat};

/// Colour type of gray without alpha.
const GRAY: u8 = 0;
/// A floor, so that small pixel limits do not make ordinary images too costly.
const LEAST_BUDGET: u64 = 64 << 20;

/// The size of a PNG for which OpenCV gives Pillow's pixels.
///
/// Those are all but 16-bit gray: Pillow clips it at 255, OpenCV keeps the high byte. Images whose stored samples
/// exceed four bytes per permitted pixel are too costly, as in the `image` backend, so a file's outcome does not depend
/// on the decoder.
pub(crate) fn readable_size(encoded: &[u8], limits: PixelLimits) -> Result<Size, DecodeError> {
    // Signature, length, and the first chunk: "IHDR", width, height, bit depth, colour type.
    let header =
        encoded.get(12..26).and_then(|bytes| bytes.strip_prefix(b"IHDR")).and_then(|bytes| bytes.first_chunk());
    let Some(&[w3, w2, w1, w0, h3, h2, h1, h0, depth, color]) = header else {
        return Err(DecodeError::corrupt(ImageFormat::Png, "it does not begin with a header"));
    };
    if (depth, color) == (16, GRAY) {
        return Err(DecodeError::unsupported(ImageFormat::Png, "16-bit gray, which OpenCV scales and Pillow clips"));
    }
    let size = Size::new(u32::from_be_bytes([w3, w2, w1, w0]), u32::from_be_bytes([h3, h2, h1, h0]));
    limits.check(size)?;
    let bytes = size.pixels().saturating_mul(channels(color) * u64::from(depth.div_ceil(8)));
    let budget = limits.max_pixels.saturating_mul(4).max(LEAST_BUDGET);
    if bytes > budget {
        return Err(DecodeError::TooCostly(format!(
            "PNG of {size} takes {} MiB to decode, more than {} MiB",
            bytes >> 20,
            budget >> 20
        )));
    }
    Ok(size)
}

/// Samples per pixel, by the header's colour type; a palette's colours have three.
const fn channels(color: u8) -> u64 {
    match color {
        GRAY => 1,
        4 => 2,
        6 => 4,
        _ => 3,
    }
}
