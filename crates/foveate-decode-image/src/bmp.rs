//! Differences of the library from Pillow for BMP: 16-bit colours, OS/2 headers, truncated files.

use std::borrow::Cow;

use foveate_core::{PixelBuf, Size};
use foveate_decode::DecoderOptions;

/// The length of the header that every decoder reads, and of OS/2's, which begins alike.
const USUAL: u32 = 40;
const OS2: u32 = 64;

const UNCOMPRESSED: u32 = 0;
const BIT_MASKS: u32 = 3;

/// The fields that decide what is to be done.
pub(crate) struct Header {
    length: u32,
    /// Start of the pixels.
    start: u32,
    size: Size,
    bits: u16,
    compression: u32,
    green_mask: u32,
}

impl Header {
    /// Reads the header; `None` for the short one of Windows 2, which needs no change, and for one that is cut off.
    pub(crate) fn read(file: &[u8]) -> Option<Self> {
        let length = u32_at(file, 14).filter(|&length| length >= USUAL)?;
        Some(Self {
            length,
            start: u32_at(file, 10)?,
            size: Size::new(u32_at(file, 18)?, (u32_at(file, 22)? as i32).unsigned_abs()),
            bits: (u32_at(file, 26)? >> 16) as u16,
            compression: u32_at(file, 30)?,
            green_mask: u32_at(file, 58).unwrap_or(0),
        })
    }

    /// The file in a form that the library reads.
    pub(crate) fn readable<'a>(&self, file: &'a [u8], options: &DecoderOptions, out: &mut PixelBuf) -> Cow<'a, [u8]> {
        if self.length == OS2 && self.compression != BIT_MASKS {
            return self.with_usual_header(file).map_or(file.into(), Cow::from);
        }
        let is_filled = options.allow_truncated && self.compression == UNCOMPRESSED;
        if is_filled && out.admit(self.size, self.size.pixels().saturating_mul(4)).is_ok() {
            return self.filled_up(file).map_or(file.into(), Cow::from);
        }
        file.into()
    }

    fn with_usual_header(&self, file: &[u8]) -> Option<Vec<u8>> {
        let start = self.start.checked_sub(OS2 - USUAL)?;
        let info = file.get(18..14 + USUAL as usize)?;
        let rest = file.get(14 + OS2 as usize..)?;
        Some([&file[..10], &start.to_le_bytes(), &USUAL.to_le_bytes(), info, rest].concat())
    }

    /// Zeros in the place of the rows that a truncated file lacks. As in Pillow, a row that is not whole counts as
    /// lacking, but its padding may be missing.
    fn filled_up(&self, file: &[u8]) -> Option<Vec<u8>> {
        let row = (self.size.width as usize).checked_mul(self.bits.into())?.div_ceil(32) * 4;
        let start = self.start as usize;
        let pixels = file.get(start..)?;
        let length = row.checked_mul(self.size.height as usize)?;
        if row == 0 || pixels.len() >= length {
            return None;
        }
        let padding = row - (self.size.width as usize * usize::from(self.bits)).div_ceil(8);
        let kept = ((pixels.len() + padding) / row * row).min(pixels.len());
        let mut whole = file[..start + kept].to_vec();
        whole.resize(start + length, 0);
        Some(whole)
    }

    /// Changes the levels of 16-bit colours to Pillow's: the library rounds `level * 255 / 31`, Pillow cuts off.
    pub(crate) fn cut_levels(&self, pixels: &mut PixelBuf) {
        let green = match (self.bits, self.compression, self.green_mask) {
            (16, UNCOMPRESSED, _) | (16, BIT_MASKS, 0x03E0) => 31,
            (16, BIT_MASKS, 0x07E0) => 63,
            _ => return,
        };
        for [r, g, b] in pixels.as_mut_slice().as_chunks_mut().0 {
            (*r, *g, *b) = (cut(*r, 31), cut(*g, green), cut(*b, 31));
        }
    }
}

/// A rounded level of 0 to `largest`, cut off.
pub(crate) fn cut(level: u8, largest: u32) -> u8 {
    ((u32::from(level) * largest + 127) / 255 * 255 / largest) as u8
}

fn u32_at(file: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*file.get(at..)?.first_chunk()?))
}
