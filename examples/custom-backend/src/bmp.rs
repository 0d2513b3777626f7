//! A decoder: Windows bitmaps of 24 bits per pixel, uncompressed.

use foveate::core::{PixelBuf, RegistryError, Size};
use foveate::decode::{
    Capability, DecodeError, DecodeHint, Decoded, Decoder, DecoderBackend, DecoderRegistry, FormatSet, ImageFormat,
    sniff,
};

/// Adds the backend to `registry`.
///
/// # Errors
/// If the name is taken.
pub fn register(registry: &mut DecoderRegistry) -> Result<(), RegistryError> {
    registry.register(DecoderBackend::new("toy-bmp", "24-bit BMP, as an example", |_| Ok(Box::new(ToyBmp))))
}

struct ToyBmp;

impl Decoder for ToyBmp {
    fn decode(&mut self, encoded: &[u8], _: DecodeHint, out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
        out.clear(); // a buffer is empty after an error
        let format = sniff(encoded)?;
        if format != ImageFormat::Bmp {
            return Err(DecodeError::unsupported(format, "toy-bmp reads BMP only"));
        }
        let (size, rows) = header(encoded)?;
        // The limits are checked before any memory is taken.
        let pixels = out.reset(size)?;
        let width = size.width as usize;
        // Rows go from the bottom up, are padded to four bytes, and have blue first.
        for (to, from) in pixels.chunks_exact_mut(width * 3).rev().zip(rows.chunks(stride(size.width))) {
            for (rgb, bgr) in to.chunks_exact_mut(3).zip(from.chunks_exact(3)) {
                rgb.copy_from_slice(&[bgr[2], bgr[1], bgr[0]]);
            }
        }
        Ok(Decoded { format: ImageFormat::Bmp, native: size, is_clipped: false })
    }

    fn capability(&self) -> Capability {
        Capability { formats: FormatSet::of(&[ImageFormat::Bmp]), scaled: false, low_frequencies: false, exact_jpeg: false }
    }
}

/// The size, and the bytes of all rows.
fn header(encoded: &[u8]) -> Result<(Size, &[u8]), DecodeError> {
    let truncated = || DecodeError::truncated(ImageFormat::Bmp, format!("{} bytes", encoded.len()));
    let head: &[u8; 54] = encoded.first_chunk().ok_or_else(truncated)?;
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (start, size) = (number(10) as usize, Size::new(number(18), number(22)));
    let (bits, compression) = (u16::from_le_bytes([head[28], head[29]]), number(30));
    if bits != 24 || compression != 0 || size.height > i32::MAX as u32 || size.width > i32::MAX as u32 {
        return Err(DecodeError::unsupported(ImageFormat::Bmp, "not 24 bits per pixel, uncompressed, bottom up"));
    }
    let len = stride(size.width).checked_mul(size.height as usize).ok_or_else(truncated)?;
    let rows = encoded.get(start..).and_then(|rest| rest.get(..len)).ok_or_else(truncated)?;
    Ok((size, rows))
}

fn stride(width: u32) -> usize {
    (width as usize * 3).next_multiple_of(4)
}
