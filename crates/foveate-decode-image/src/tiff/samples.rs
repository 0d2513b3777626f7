//! A row of samples as RGB, as Pillow's modes and its `convert("RGB")` have it.

use std::io::Cursor;

use ::tiff::decoder::Decoder;
use ::tiff::decoder::ifd::Value;
use ::tiff::tags::Tag;
use foveate_decode::DecodeError;

use super::error::{fault, unsupported};
use super::layout::{TiffLayout, list};
use crate::convert::{cmyk_to_rgb, map};

/// The kind of the samples, with the places of a pixel's colours among its bytes.
pub(super) enum SampleKind {
    /// Pixels of 1, 2, 4 or 8 bits that name a colour: a palette's, or a level of gray.
    Named {
        bits: usize,
        step: usize,
        colors: Box<[[u8; 3]; 256]>,
    },
    /// Gray in numbers that may exceed 255, which Pillow clips, not scales.
    Clipped {
        number: Number,
        big_endian: bool,
    },
    Rgb(Bytes),
    Cmyk(Bytes),
    /// Luma and two chroma samples, converted as Pillow does itself, or as libtiff does for it.
    YCbCr {
        by_pillow: bool,
    },
}

#[derive(Clone, Copy)]
pub(super) enum Number {
    U16,
    I16,
    I32,
    F32,
}

/// Samples of whole bytes, of which the high one counts.
#[derive(Clone, Copy)]
pub(super) struct Bytes {
    /// Bytes of a pixel, and of a sample.
    pixel: usize,
    sample: usize,
    /// Place of a sample's high byte.
    high: usize,
    /// True if the first extra sample is alpha by which the colours have been multiplied.
    is_premultiplied: bool,
}

impl SampleKind {
    pub(super) fn read(layout: &TiffLayout, directory: &mut Decoder<Cursor<&[u8]>>) -> Result<Self, DecodeError> {
        let bytes = Bytes::of(layout);
        let step = layout.samples;
        let of_jpeg = layout.compression == super::chunk::JPEG;
        // Pillow swaps the bytes of big-endian numbers, those that libtiff has swapped too, but for unsigned 16 bits.
        let swaps = layout.big_endian && layout.compression == super::chunk::RAW;
        match (layout.photometric, layout.bits, layout.format, layout.samples) {
            (0 | 1, 1 | 2 | 4, 1, 1) | (0 | 1, 8, 1 | 2, 1..) if !bytes.is_premultiplied => {
                Ok(Self::Named { bits: layout.bits, step, colors: grays(layout.bits, layout.photometric == 0) })
            }
            (0 | 1, 16, 1, 1) => Ok(Self::Clipped { number: Number::U16, big_endian: layout.big_endian }),
            (1, 16, 2, 1) => Ok(Self::Clipped { number: Number::I16, big_endian: swaps }),
            // Pillow takes unsigned numbers for signed ones.
            (1, 32, 1 | 2, 1) => Ok(Self::Clipped { number: Number::I32, big_endian: swaps }),
            (0 | 1, 32, 3, 1) => Ok(Self::Clipped { number: Number::F32, big_endian: swaps }),
            (2, 8 | 16, 1, 3..) if layout.samples > 3 || !bytes.is_premultiplied => Ok(Self::Rgb(bytes)),
            (3, 1 | 2 | 4, 1, 1) | (3, 8, 1, 1..) => {
                let colors = palette(&list::<u16>(directory, Tag::ColorMap)?);
                Ok(Self::Named { bits: layout.bits, step, colors })
            }
            (5, 8 | 16, 1, 4..) => Ok(Self::Cmyk(bytes)),
            (6, 8, 1, 3) if of_jpeg && !layout.is_planar => Ok(Self::Rgb(bytes)),
            (6, 8, 1, 3) if !of_jpeg && !layout.is_planar && is_plain_ycbcr(directory)? => {
                Ok(Self::YCbCr { by_pillow: layout.compression == super::chunk::RAW })
            }
            _ => Err(unsupported(describe(layout))),
        }
    }

    /// Fills `pixels` from the first of `line`.
    pub(super) fn to_rgb(&self, line: &[u8], pixels: &mut [[u8; 3]]) {
        match self {
            Self::Named { bits: 8, step, colors } => {
                fill(line, *step, pixels, |bytes| colors[usize::from(bytes[0])]);
            }
            Self::Named { bits, colors, .. } => packed(line, *bits, pixels, colors),
            Self::Clipped { number, big_endian } => number.clip_all(line, *big_endian, pixels),
            Self::Rgb(bytes) if bytes.is_premultiplied => fill(line, bytes.pixel, pixels, |pixel| bytes.divided(pixel)),
            Self::Rgb(bytes) => fill(line, bytes.pixel, pixels, |pixel| bytes.first(pixel)),
            Self::Cmyk(bytes) => fill(line, bytes.pixel, pixels, |pixel| cmyk_to_rgb(&bytes.first(pixel))),
            Self::YCbCr { by_pillow: true } => map(line, pixels.as_flattened_mut(), ycbcr_of_pillow),
            Self::YCbCr { by_pillow: false } => map(line, pixels.as_flattened_mut(), ycbcr_of_libtiff),
        }
    }
}

fn fill(line: &[u8], step: usize, pixels: &mut [[u8; 3]], pixel: impl Fn(&[u8]) -> [u8; 3]) {
    for (to, from) in pixels.iter_mut().zip(line.chunks_exact(step)) {
        *to = pixel(from);
    }
}

fn packed(line: &[u8], bits: usize, pixels: &mut [[u8; 3]], colors: &[[u8; 3]; 256]) {
    let mask = (1 << bits) - 1;
    for (x, pixel) in pixels.iter_mut().enumerate() {
        let at = x * bits;
        let shift = 8 - bits - at % 8;
        *pixel = colors[usize::from(line[at / 8] >> shift & mask)];
    }
}

/// Levels from 0 to 255 for numbers of `bits` bits.
fn grays(bits: usize, white_is_zero: bool) -> Box<[[u8; 3]; 256]> {
    let largest = (1 << bits) - 1;
    Box::new(std::array::from_fn(|number| {
        let level = (number.min(largest) * 255 / largest) as u8;
        [if white_is_zero { 255 - level } else { level }; 3]
    }))
}

/// A ColorMap: all red values, then all green, then all blue, of 16 bits. Missing colours are black.
fn palette(values: &[u16]) -> Box<[[u8; 3]; 256]> {
    let colors = values.len() / 3;
    let mut palette = Box::new([[0; 3]; 256]);
    for (i, color) in palette.iter_mut().take(colors).enumerate() {
        *color = [i, colors + i, 2 * colors + i].map(|at| (values[at] >> 8) as u8);
    }
    palette
}

/// Returns true if chroma is not subsampled, and coefficients and reference levels are the usual ones. Pillow writes
/// the usual levels into every such file.
fn is_plain_ycbcr(directory: &mut Decoder<Cursor<&[u8]>>) -> Result<bool, DecodeError> {
    const COEFFICIENTS: Tag = Tag::Unknown(529);
    const REFERENCE_LEVELS: Tag = Tag::Unknown(532);
    let is_whole = list::<u16>(directory, Tag::ChromaSubsampling)? == [1, 1];
    let has_coefficients = directory.find_tag(COEFFICIENTS).map_err(fault)?.is_some();
    let usual = [0, 255, 128, 255, 128, 255].map(|level| Value::Rational(level, 1));
    let levels = directory.find_tag(REFERENCE_LEVELS).map_err(fault)?;
    Ok(is_whole && !has_coefficients && levels.is_none_or(|levels| levels == Value::List(usual.to_vec())))
}

fn describe(layout: &TiffLayout) -> String {
    let TiffLayout { samples, bits, format, photometric, compression, .. } = layout;
    let color = match photometric {
        0 | 1 => "gray",
        2 => "RGB",
        3 => "palette",
        5 => "CMYK",
        6 => "YCbCr",
        8..=10 => "Lab",
        _ => "unknown",
    };
    format!("{color} colour in {samples} samples of {bits} bits (sample format {format}, compression {compression})")
}

impl Bytes {
    fn of(layout: &TiffLayout) -> Self {
        let sample = layout.bits.div_ceil(8);
        Self {
            pixel: sample * layout.samples,
            sample,
            high: if layout.big_endian { 0 } else { sample.saturating_sub(1) },
            is_premultiplied: layout.extra.first() == Some(&1),
        }
    }

    fn first<const N: usize>(self, pixel: &[u8]) -> [u8; N] {
        std::array::from_fn(|i| pixel[i * self.sample + self.high])
    }

    /// Divides the colours by alpha; nothing is left where alpha is 0.
    fn divided(self, pixel: &[u8]) -> [u8; 3] {
        let [r, g, b, alpha] = self.first(pixel);
        [r, g, b].map(|c| (u32::from(c) * 255).checked_div(alpha.into()).map_or(0, |level| level.min(255) as u8))
    }
}

impl Number {
    fn clip_all(self, line: &[u8], big_endian: bool, pixels: &mut [[u8; 3]]) {
        match self {
            Self::U16 => clip(line, big_endian, pixels, |bytes| u16::from_le_bytes(bytes).min(255) as u8),
            Self::I16 => clip(line, big_endian, pixels, |bytes| i16::from_le_bytes(bytes).clamp(0, 255) as u8),
            Self::I32 => clip(line, big_endian, pixels, |bytes| i32::from_le_bytes(bytes).clamp(0, 255) as u8),
            Self::F32 => clip(line, big_endian, pixels, |bytes| f32::from_le_bytes(bytes) as u8),
        }
    }
}

fn clip<const N: usize>(line: &[u8], big_endian: bool, pixels: &mut [[u8; 3]], level: impl Fn([u8; N]) -> u8) {
    for (pixel, bytes) in pixels.iter_mut().zip(line.as_chunks::<N>().0) {
        let mut bytes = *bytes;
        if big_endian {
            bytes.reverse();
        }
        *pixel = [level(bytes); 3];
    }
}

/// JFIF's formula with six fractional bits, rounded as Pillow's table is: half is added to negative parts too, before
/// the fraction is cut off.
fn ycbcr_of_pillow(&[y, cb, cr]: &[u8; 3]) -> [u8; 3] {
    fn part(factor: f64, value: u8) -> i32 {
        (factor * 64.0 * (f64::from(value) - 128.0) + 0.5) as i32
    }
    [part(1.402, cr), part(-0.344_14, cb) + part(-0.714_14, cr), part(1.772, cb)]
        .map(|parts| ((parts >> 6) + i32::from(y)).clamp(0, 255) as u8)
}

/// JFIF's formula with 16 fractional bits, rounded.
fn ycbcr_of_libtiff(&[y, cb, cr]: &[u8; 3]) -> [u8; 3] {
    let cb = i32::from(cb) - 128;
    let cr = i32::from(cr) - 128;
    [91_881 * cr, -22_553 * cb - 46_802 * cr, 116_130 * cb]
        .map(|parts| (((parts + (1 << 15)) >> 16) + i32::from(y)).clamp(0, 255) as u8)
}
