//! Pixels in the place of an encoded image, for callers that have decoded it themselves. [`ByFormat`](crate::ByFormat)
//! takes them without a decoder.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use foveate_core::{PixelBuf, Size};

use crate::{DecodeError, Decoded, ImageFormat};

/// The start of such bytes. It is random in each process, so that no file's content is taken for pixels.
static MARK: LazyLock<[u8; 16]> = LazyLock::new(|| {
    let random = [0_u64; 2].map(|seed| RandomState::new().hash_one(seed).to_ne_bytes());
    std::array::from_fn(|at| random[at / 8][at % 8])
});

/// Bytes before the pixels: the mark, width and height.
const HEADER: usize = 16 + 4 + 4;

/// Writes the RGB image `rgb`, `[h, w, 3]` u8, as bytes for a decoder of this process. `None` if its length is not that
/// of `size`.
pub fn encode(size: Size, rgb: &[u8]) -> Option<Vec<u8>> {
    if size.rgb_len() != Some(rgb.len()) {
        return None;
    }
    let parts = [MARK.as_slice(), &size.width.to_ne_bytes(), &size.height.to_ne_bytes(), rgb];
    Some(parts.concat())
}

/// Splits what [`encode`] wrote; `None` for anything else.
pub(crate) fn parse(bytes: &[u8]) -> Option<(Size, &[u8])> {
    let (header, rgb) = bytes.split_at_checked(HEADER)?;
    let numbers = header.strip_prefix(MARK.as_slice())?;
    let (width, rest) = numbers.split_first_chunk()?;
    let size = Size::new(u32::from_ne_bytes(*width), u32::from_ne_bytes(*rest.first_chunk()?));
    (size.rgb_len() == Some(rgb.len())).then_some((size, rgb))
}

/// Copies the pixels. They count as BMP, which stores pixels as they are and has no orientation.
pub(crate) fn copy(native: Size, rgb: &[u8], out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
    out.reset(native)?.copy_from_slice(rgb);
    Ok(Decoded { format: ImageFormat::Bmp, native, is_clipped: false })
}
