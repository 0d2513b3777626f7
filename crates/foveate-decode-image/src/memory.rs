use foveate_core::{PixelBuf, PixelLimits, Size};
use foveate_decode::{DecodeError, ImageFormat};
use image::Limits;

/// The library's allocation limit for one image: four bytes for every permitted pixel, so that RGBA8 always fits, and
/// never less than 64 MiB.
pub(crate) fn budget(limits: PixelLimits) -> u64 {
    limits.max_pixels.saturating_mul(4).max(64 << 20)
}

/// The same limit in KiB.
pub(crate) fn kibibytes(limits: PixelLimits) -> u32 {
    u32::try_from(budget(limits) >> 10).unwrap_or(u32::MAX)
}

/// The same limit in the library's terms.
pub(crate) fn limits(limits: PixelLimits) -> Limits {
    let mut library = Limits::default();
    library.max_alloc = Some(budget(limits));
    library
}

/// Refuses an image whose samples take more than the budget, and waits for the turn of one whose samples take much.
pub(crate) fn admit(format: ImageFormat, size: Size, bytes: u64, out: &mut PixelBuf) -> Result<(), DecodeError> {
    out.limits().check(size)?;
    let budget = budget(out.limits());
    if bytes <= budget {
        return Ok(out.admit(size, bytes)?);
    }
    Err(DecodeError::TooCostly(format!(
        "{format} of {size} takes {} MiB to decode, more than {} MiB",
        bytes >> 20,
        budget >> 20
    )))
}
