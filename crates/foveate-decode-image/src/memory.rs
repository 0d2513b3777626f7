use foveate_core::{PixelLimits, Size};
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

/// Refuses an image whose samples take more than the budget.
pub(crate) fn check(format: ImageFormat, size: Size, bytes: u64, limits: PixelLimits) -> Result<(), DecodeError> {
    let budget = budget(limits);
    if bytes <= budget {
        return Ok(());
    }
    Err(DecodeError::TooCostly(format!(
        "{format} of {size} takes {} MiB to decode, more than {} MiB",
        bytes >> 20,
        budget >> 20
    )))
}
