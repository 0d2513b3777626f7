//! Choice of the scale to decode at.

use foveate_core::Size;
use foveate_decode::DecodeHint;

/// The useful scales, in eighths. libjpeg-turbo has N/8 for every N, but SIMD code for these alone, and the others give
/// fewer pixels in more time. CPU time per image, median over 44 baseline photos of 1 megapixel: 3.2 ms at 8/8; 5.5,
/// 4.5 and 3.9 at 7/8, 6/8 and 5/8; 2.7 at 4/8, 2.8 at 3/8, 2.5 at 2/8 and 2.3 at 1/8. For pictures of 256 x 256: 0.12;
/// 0.28, 0.22 and 0.17; 0.085, 0.10, 0.071 and 0.068.
const EIGHTHS: [u32; 4] = [1, 2, 4, 8];

/// Returns the smallest scale, in eighths, whose shorter side the hint permits, and the picture's size at that scale.
/// Without a hint, and for pictures that are small already: 8 and the native size.
pub(crate) fn choose(native: Size, hint: DecodeHint) -> (u32, Size) {
    let least = hint.min_side.unwrap_or(u32::MAX);
    let sizes = EIGHTHS.map(|eighths| (eighths, scaled(native, eighths)));
    sizes.into_iter().find(|(_, size)| size.min_side() >= least).unwrap_or((8, native))
}

/// Rounds sides up, as libjpeg does.
fn scaled(native: Size, eighths: u32) -> Size {
    Size::new((native.width * eighths).div_ceil(8), (native.height * eighths).div_ceil(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_scale_that_suffices_is_chosen() {
        let choice = |width, height, min_side| {
            choose(Size::new(width, height), DecodeHint { min_side, ..DecodeHint::default() })
        };
        let native = Size::new(1001, 700);
        assert_eq!(choice(1001, 700, None), (8, native));
        assert_eq!(choice(1001, 700, Some(701)), (8, native));
        assert_eq!(choice(1001, 700, Some(351)), (8, native));
        assert_eq!(choice(1001, 700, Some(350)), (4, Size::new(501, 350)));
        assert_eq!(choice(1001, 700, Some(176)), (4, Size::new(501, 350)));
        assert_eq!(choice(1001, 700, Some(175)), (2, Size::new(251, 175)));
        assert_eq!(choice(1001, 700, Some(88)), (1, Size::new(126, 88)));
        assert_eq!(choice(1001, 700, Some(0)), (1, Size::new(126, 88)));
        assert_eq!(choice(3, 65_500, Some(1)), (1, Size::new(1, 8188)));
    }
}
