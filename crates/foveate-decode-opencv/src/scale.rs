//! OpenCV's reduced scales.

use foveate_core::Size;
use foveate_decode::DecodeHint;
use opencv::imgcodecs::{IMREAD_COLOR, IMREAD_REDUCED_COLOR_2, IMREAD_REDUCED_COLOR_4, IMREAD_REDUCED_COLOR_8};

/// One of the sizes that OpenCV decodes a JPEG at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadScale {
    denominator: u32,
    flag: i32,
}

impl ReadScale {
    /// The stored size.
    pub(crate) const NATIVE: Self = Self { denominator: 1, flag: IMREAD_COLOR };

    const REDUCED: [Self; 3] = [
        Self { denominator: 8, flag: IMREAD_REDUCED_COLOR_8 },
        Self { denominator: 4, flag: IMREAD_REDUCED_COLOR_4 },
        Self { denominator: 2, flag: IMREAD_REDUCED_COLOR_2 },
    ];

    /// The smallest scale that `hint` permits for a picture of `native` size.
    pub(crate) fn permitted(native: Size, hint: DecodeHint) -> Self {
        Self::REDUCED
            .into_iter()
            .find(|scale| hint.min_side.is_some_and(|side| scale.of(native).min_side() >= side))
            .unwrap_or(Self::NATIVE)
    }

    /// The decoded size of a picture of `native` size: each side rounded up, as in libjpeg.
    pub(crate) fn of(self, native: Size) -> Size {
        Size::new(native.width.div_ceil(self.denominator), native.height.div_ceil(self.denominator))
    }

    /// OpenCV's flag for it.
    pub(crate) const fn flag(self) -> i32 {
        self.flag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_scale_that_suffices_is_taken() {
        let denominator = |native, min_side| {
            ReadScale::permitted(native, DecodeHint { min_side, ..DecodeHint::default() }).denominator
        };
        let photo = Size::new(1793, 1024);
        assert_eq!(denominator(photo, None), 1);
        assert_eq!(denominator(photo, Some(128)), 8);
        assert_eq!(denominator(photo, Some(129)), 4);
        assert_eq!(denominator(photo, Some(256)), 4);
        assert_eq!(denominator(photo, Some(512)), 2);
        assert_eq!(denominator(photo, Some(513)), 1);
        assert_eq!(denominator(photo, Some(5000)), 1);
        assert_eq!(ReadScale::REDUCED[0].of(photo), Size::new(225, 128));
        assert_eq!(denominator(Size::new(9, 2041), Some(2)), 8, "sides are rounded up");
    }
}
