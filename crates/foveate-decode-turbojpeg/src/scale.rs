//! Which scale to decode at.

use foveate_core::Size;
use foveate_decode::DecodeHint;

/// The scales worth using, in eighths. libjpeg-turbo has N/8 for every N, but SIMD code for these alone.
const EIGHTHS: [u32; 4] = [1, 2, 4, 8];

/// The smallest scale whose shorter side the hint permits, in eighths, and the size that the picture has at it; without
/// a hint, and for pictures that are small already, 8 and the native size.
pub(crate) fn choose(native: Size, hint: DecodeHint) -> (u32, Size) {
    let least = hint.min_side.unwrap_or(u32::MAX);
    let sizes = EIGHTHS.map(|eighths| (eighths, scaled(native, eighths)));
    sizes.into_iter().find(|(_, size)| size.min_side() >= least).unwrap_or((8, native))
}

/// Sides are rounded up, as libjpeg does.
fn scaled(native: Size, eighths: u32) -> Size {
    let side = |side: u32| (side * eighths).div_ceil(8);
    Size::new(side(native.width), side(native.height))
}
