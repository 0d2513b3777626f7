//! Netpbm.

use std::io::Cursor;

use foveate_core::{PixelBuf, Size};
use foveate_decode::{DecodeError, ImageFormat};
use image::codecs::pnm::PnmDecoder;
use image::{ColorType, ImageDecoder};

use crate::fault::fault;
use crate::memory;

const FORMAT: ImageFormat = ImageFormat::Pnm;

/// A decoded image's properties.
pub(crate) struct PnmImage {
    pub(crate) size: Size,
    pub(crate) is_clipped: bool,
}

/// Decodes as Pillow does: samples are scaled to 255, but for gray with more than 255 levels, which is scaled to 65535
/// and clipped.
pub(crate) fn decode(encoded: &[u8], native: &mut Vec<u8>, out: &mut PixelBuf) -> Result<PnmImage, DecodeError> {
    let decoder = PnmDecoder::new(Cursor::new(encoded)).map_err(|error| fault(FORMAT, error))?;
    let (width, height) = decoder.dimensions();
    let size = Size::new(width, height);
    let color = decoder.color_type();
    memory::admit(FORMAT, size, decoder.total_bytes(), out)?;
    let most = f64::from(decoder.header().maximal_sample().max(1));
    native.clear();
    native.resize(decoder.total_bytes() as usize, 0);
    decoder.read_image(native).map_err(|error| fault(FORMAT, error))?;
    let is_wide = color.bytes_per_pixel() > color.channel_count();
    let is_clipped = color == ColorType::L16;
    // The library scales to all that a sample holds, which is undone, because rounding twice is not rounding once.
    let full = if is_wide { 65535.0 } else { 255.0 };
    let scaled_to = if is_clipped { 65535.0 } else { 255.0 };
    let channels = usize::from(color.channel_count());
    let bytes = usize::from(color.bytes_per_pixel());
    let pixels = out.reset(size)?;
    for (pixel, samples) in pixels.as_chunks_mut::<3>().0.iter_mut().zip(native.chunks_exact(bytes)) {
        for (channel, target) in pixel.iter_mut().enumerate() {
            let at = if channels < 3 { 0 } else { channel };
            let sample =
                if is_wide { u16::from_ne_bytes([samples[2 * at], samples[2 * at + 1]]) } else { samples[at].into() };
            let level = (f64::from(sample) * most / full).round();
            *target = (level / most * scaled_to).round_ties_even().min(255.0) as u8;
        }
    }
    Ok(PnmImage { size, is_clipped })
}
