//! Cases of PNG that the library leaves open: files that end early, and 16-bit gray with a transparent colour.

mod rows;

use std::io::Read;

use flate2::read::ZlibEncoder;
use flate2::{Compression, Crc};
use foveate_core::PixelBuf;

use crate::convert::Gray16;
use rows::PngRows;

const IEND: &[u8] = b"\0\0\0\0IEND\xAE\x42\x60\x82";

/// A file that ends early, up to its last whole chunk or with what there is of its pixels' chunk, and with an end;
/// `None` for a file that has one.
pub(crate) fn completed(file: &[u8]) -> Option<Vec<u8>> {
    let mut at = 8;
    while let Some(chunk) = file.get(at..).filter(|rest| !rest.is_empty()) {
        let Some((length, rest)) = chunk.split_first_chunk::<4>() else { break };
        let length = u32::from_be_bytes(*length) as usize;
        if rest.starts_with(b"IEND") && length == 0 && rest.len() >= 8 {
            return None;
        }
        if rest.len() < length.saturating_add(8) {
            let pixels = rest.strip_prefix(b"IDAT").map(|data| &data[..data.len().min(length)]);
            return Some([&file[..at], idat(pixels.unwrap_or_default()).as_slice(), IEND].concat());
        }
        at += length + 12;
    }
    Some([file.get(..at).unwrap_or(file), IEND].concat())
}

/// A completed file with zeros in the place of the rows that it lacks. `None` if it has no header or no pixels, or
/// exceeds the limits, which decoding it will tell.
pub(crate) fn filled_up(file: &[u8], out: &mut PixelBuf) -> Option<Vec<u8>> {
    let first = chunks(file).find(|chunk| chunk.kind == b"IDAT")?.at;
    let rows = PngRows::of(chunks(file).next().filter(|chunk| chunk.kind == b"IHDR")?.payload, out)?;
    let pixels = chunks(file).filter(|chunk| chunk.kind == b"IDAT");
    let packed: Vec<u8> = pixels.flat_map(|chunk| chunk.payload).copied().collect();
    let mut whole = Vec::new();
    ZlibEncoder::new(rows.expand(&packed).as_slice(), Compression::none()).read_to_end(&mut whole).ok()?;
    Some([&file[..first], idat(&whole).as_slice(), IEND].concat())
}

struct Chunk<'a> {
    at: usize,
    kind: &'a [u8],
    payload: &'a [u8],
}

fn chunks(file: &[u8]) -> impl Iterator<Item = Chunk<'_>> {
    let mut at = 8;
    std::iter::from_fn(move || {
        let (length, rest) = file.get(at..)?.split_first_chunk::<4>()?;
        let length = u32::from_be_bytes(*length) as usize;
        let chunk = Chunk { at, kind: rest.get(..4)?, payload: rest.get(4..length.checked_add(4)?)? };
        at += length + 12;
        Some(chunk)
    })
}

fn idat(data: &[u8]) -> Vec<u8> {
    if data.is_empty() {
        return Vec::new();
    }
    let mut sum = Crc::new();
    sum.update(b"IDAT");
    sum.update(data);
    [(data.len() as u32).to_be_bytes().as_slice(), b"IDAT", data, &sum.sum().to_be_bytes()].concat()
}

/// Returns true if 16-bit gray in the file has a transparent colour. The library turns that into an alpha channel that
/// the file does not have.
pub(crate) fn gray16(encoded: &[u8]) -> Gray16 {
    // IHDR is always first: bit depth at byte 24, colour type at byte 25, where 0 means gray without alpha.
    if encoded.get(24..26) == Some(&[16, 0]) { Gray16::WithTransparentColor } else { Gray16::Alone }
}
