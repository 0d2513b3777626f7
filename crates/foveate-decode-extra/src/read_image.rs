//! The parts that the decoders of all formats share.
#![cfg_attr(not(any(feature = "avif", feature = "heic", feature = "jpeg2000", feature = "jxl")), allow(dead_code))]

use foveate_core::{PixelBuf, PixelLimits, Size};
use foveate_decode::{DecodeError, ImageFormat};

/// A decoded image's properties.
pub(crate) struct ReadImage {
    pub(crate) size: Size,
    pub(crate) is_clipped: bool,
}

/// Most bytes that a library may take for one image: these decode to planes of 32-bit samples, so sixteen bytes for
/// every permitted pixel, and never less than 256 MiB.
pub(crate) fn budget(limits: PixelLimits) -> u64 {
    limits.max_pixels.saturating_mul(16).max(256 << 20)
}

/// Refuses an image whose library takes more than the budget, and waits for the turn of one that takes much.
pub(crate) fn admit(format: ImageFormat, size: Size, bytes: u64, out: &mut PixelBuf) -> Result<(), DecodeError> {
    out.limits().check(size)?;
    let budget = budget(out.limits());
    if bytes <= budget {
        return Ok(out.admit(size, bytes)?);
    }
    let takes = bytes >> 20;
    let most = budget >> 20;
    Err(DecodeError::TooCostly(format!("{format} of {size} takes {takes} MiB to decode, more than {most} MiB")))
}
