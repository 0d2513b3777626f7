//! JPEG 2000 with hayro-jpeg2000.

use foveate_core::{PixelBuf, Size};
use foveate_decode::{DecodeError, ImageFormat};
use hayro_jpeg2000::{ComponentData, DecodeSettings, DecoderContext, Image};

use crate::read_image::{ReadImage, admit};

const FORMAT: ImageFormat = ImageFormat::Jpeg2000;
/// The beginning of a file without a container.
const CODESTREAM: &[u8] = b"\xFF\x4F";

/// Decodes as Pillow does: samples of other depths than 8 bits are shifted, not scaled, but for gray of more than 8
/// bits, which is clipped.
pub(crate) fn decode(encoded: &[u8], out: &mut PixelBuf) -> Result<ReadImage, DecodeError> {
    // Otherwise what a truncated file lacks is gray, and nothing says so.
    let settings = DecodeSettings { strict: true, ..DecodeSettings::default() };
    let image = Image::new(encoded, &settings).map_err(|error| DecodeError::corrupt(FORMAT, error.to_string()))?;
    let size = Size::new(image.width(), image.height());
    let channels = u64::from(image.color_space().num_channels()) + u64::from(image.has_alpha());
    // Coefficients and samples of four bytes each.
    admit(FORMAT, size, size.pixels().saturating_mul(channels.saturating_mul(8)), out)?;
    let mut context = DecoderContext::default();
    let decoded = image.decode(&mut context).map_err(|error| DecodeError::corrupt(FORMAT, error.to_string()))?;
    let components = decoded.components();
    let pixels = out.reset(size)?;
    if components.iter().any(|component| component.samples().len() != pixels.len() / 3) {
        return Err(DecodeError::corrupt(FORMAT, "a component has another size than the image"));
    }
    // A codestream has no colour space: Pillow takes a second and a fourth component for alpha.
    if components.len() == 4 && !image.has_alpha() && !encoded.starts_with(CODESTREAM) {
        return Err(DecodeError::unsupported(FORMAT, "four colour components; convert it to PNG or JPEG"));
    }
    let mut is_clipped = false;
    match components {
        [gray] if gray.bit_depth() > 8 => {
            is_clipped = true;
            for (pixel, sample) in pixels.as_chunks_mut::<3>().0.iter_mut().zip(gray.samples()) {
                *pixel = [sample.round().clamp(0.0, 255.0) as u8; 3];
            }
        }
        [gray] | [gray, _] => {
            for (pixel, sample) in pixels.as_chunks_mut::<3>().0.iter_mut().zip(gray.samples()) {
                *pixel = [eight_bits(*sample, gray.bit_depth()); 3];
            }
        }
        [red, green, blue] | [red, green, blue, _] => {
            fill(pixels, 0, red);
            fill(pixels, 1, green);
            fill(pixels, 2, blue);
        }
        more => {
            let reason = format!("{} components; convert it to PNG or JPEG", more.len());
            return Err(DecodeError::unsupported(FORMAT, reason));
        }
    }
    Ok(ReadImage { size, is_clipped })
}

fn fill(pixels: &mut [u8], channel: usize, component: &ComponentData) {
    let depth = component.bit_depth();
    for (pixel, sample) in pixels.as_chunks_mut::<3>().0.iter_mut().zip(component.samples()) {
        pixel[channel] = eight_bits(*sample, depth);
    }
}

/// A sample of `depth` bits, shifted to 8, rounded where bits are lost.
fn eight_bits(sample: f32, depth: u8) -> u8 {
    let sample = sample.round().max(0.0) as u64;
    let shifted = if depth <= 8 { sample << (8 - depth) } else { (sample + (1 << (depth - 9))) >> (depth - 8) };
    shifted.min(255) as u8
}
