//! Choice of the scale to decode at.

use foveate_core::Size;
use foveate_decode::DecodeHint;

/// Samples on each side of a block at native size.
const BLOCK: usize = 8;

/// The decoded picture's size in eighths of the native one, and the pixels' definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EighthsScale {
    pub(crate) eighths: usize,
    /// True if a reduced block comes from its lowest frequencies alone; otherwise from those that libjpeg-turbo uses.
    pub(crate) low: bool,
}

impl EighthsScale {
    pub(crate) const NATIVE: Self = Self { eighths: BLOCK, low: false };

    /// The smallest scale whose shorter side the hint permits. libjpeg-turbo's reduced transforms exist for powers of
    /// two; the lowest frequencies give every eighth up to a half.
    pub(crate) fn choose(native: Size, hint: DecodeHint) -> Self {
        let Some(least) = hint.min_side else { return Self::NATIVE };
        let low = hint.low_frequencies;
        let eighths: &[usize] = if low { &[1, 2, 3, 4] } else { &[1, 2, 4] };
        let mut scales = eighths.iter().map(|&eighths| Self { eighths, low });
        scales.find(|scale| scale.of(native).min_side() >= least).unwrap_or(Self::NATIVE)
    }

    /// The decoded size of a picture of `native` size: each side rounded up, as in libjpeg.
    pub(crate) fn of(self, native: Size) -> Size {
        let [width, height] = [native.width, native.height]
            .map(|side| (u64::from(side) * self.eighths as u64).div_ceil(BLOCK as u64) as u32);
        Size::new(width, height)
    }

    /// Samples on each side of a component's block. As in libjpeg, subsampled components are reduced less, by powers of
    /// two, as long as the ratio allows it in both directions.
    pub(crate) fn block_side(self, (h, v): (usize, usize), (max_h, max_v): (usize, usize)) -> usize {
        let mut side = self.eighths;
        while side * 2 <= BLOCK
            && (max_h * self.eighths).is_multiple_of(h * side * 2)
            && (max_v * self.eighths).is_multiple_of(v * side * 2)
        {
            side *= 2;
        }
        side
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_scale_that_suffices_is_chosen() {
        let native = Size::new(1001, 700);
        let choice = |min_side, low_frequencies| {
            let scale = EighthsScale::choose(native, DecodeHint { min_side, low_frequencies });
            (scale.eighths, scale.of(native).width)
        };
        assert_eq!(choice(None, true), (8, 1001));
        assert_eq!(choice(Some(701), true), (8, 1001));
        assert_eq!([351, 350, 176, 175, 88].map(|side| choice(Some(side), false).0), [8, 4, 4, 2, 1]);
        assert_eq!([351, 350, 264, 263, 88].map(|side| choice(Some(side), true).0), [8, 4, 4, 3, 1]);
        assert_eq!(choice(Some(263), true), (3, 376));
        assert_eq!(EighthsScale { eighths: 1, low: false }.of(Size::new(3, 65_500)), Size::new(1, 8188));
    }

    #[test]
    fn subsampled_components_are_reduced_less() {
        let side = |eighths, factors, largest| EighthsScale { eighths, low: true }.block_side(factors, largest);
        assert_eq!([1, 2, 3, 4, 8].map(|eighths| side(eighths, (1, 1), (2, 2))), [2, 4, 6, 8, 8]);
        assert_eq!([1, 2, 3, 4].map(|eighths| side(eighths, (1, 1), (2, 1))), [1, 2, 3, 4]);
        assert_eq!([1, 2, 3].map(|eighths| side(eighths, (1, 1), (4, 4))), [4, 8, 6]);
        assert_eq!(side(3, (2, 2), (2, 2)), 3);
    }
}
