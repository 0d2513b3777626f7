//! OpenCV's interpolation for each filter.

use foveate_core::Size;
use foveate_resize::{Filter, ResizeError};
use opencv::core::{MatTraitConst, ToInputArray, ToOutputArray};
use opencv::imgproc::{self, INTER_AREA, INTER_CUBIC, INTER_LINEAR};

use crate::{images, library};

/// The ways to another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It has that size already.
    Copy,
    /// By a single OpenCV interpolation.
    Direct(i32),
    /// For one axis that shrinks and one that grows: by `INTER_AREA` to the smaller size on both axes, then by another
    /// interpolation.
    ShrinkThenGrow(Size, i32),
}

impl Way {
    /// Chooses the way from a `source` size to a `scaled` one with `filter`; `None` if OpenCV has none.
    pub(crate) fn of(filter: Filter, source: Size, scaled: Size) -> Option<Self> {
        let way = match filter.approximate() {
            Filter::OpenCvLinear => Self::Direct(INTER_LINEAR),
            Filter::OpenCvArea => Self::Direct(INTER_AREA),
            Filter::OpenCvCubic => Self::Direct(INTER_CUBIC),
            Filter::Bilinear => Self::by_axis(source, scaled, INTER_LINEAR),
            Filter::Bicubic => Self::by_axis(source, scaled, INTER_CUBIC),
            _ => return None,
        };
        Some(if source == scaled { Self::Copy } else { way })
    }

    /// Shrinking axes use `INTER_AREA`, growing axes use `growing`.
    fn by_axis(source: Size, scaled: Size, growing: i32) -> Self {
        let smaller = Size::new(source.width.min(scaled.width), source.height.min(scaled.height));
        if smaller == scaled {
            Self::Direct(INTER_AREA)
        } else if smaller == source {
            Self::Direct(growing)
        } else {
            Self::ShrinkThenGrow(smaller, growing)
        }
    }
}

/// Resamples all of `source` into all of `target`. `between` is scratch.
pub(crate) fn resample(
    source: &(impl MatTraitConst + ToInputArray),
    way: Way,
    between: &mut Vec<u8>,
    target: &mut (impl MatTraitConst + ToOutputArray),
) -> Result<(), ResizeError> {
    match way {
        Way::Copy => source.copy_to(target).map_err(library::fault),
        Way::Direct(interpolation) => resize(source, target, interpolation),
        Way::ShrinkThenGrow(size, interpolation) => {
            let mut middle = images::writable(images::scratch(between, size)?, size)?;
            resize(source, &mut middle, INTER_AREA)?;
            resize(&middle, target, interpolation)
        }
    }
}

fn resize(
    source: &impl ToInputArray,
    target: &mut (impl MatTraitConst + ToOutputArray),
    interpolation: i32,
) -> Result<(), ResizeError> {
    // OpenCV writes a target of the right size and type in place.
    let size = target.size().map_err(library::fault)?;
    imgproc::resize(source, target, size, 0.0, 0.0, interpolation).map_err(library::fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(filter: Filter, scaled: Size) -> Way {
        Way::of(filter, Size::new(100, 80), scaled).unwrap()
    }

    #[test]
    fn shrinking_axes_are_averaged_and_growing_ones_interpolated() {
        let cubic = |width, height| way(Filter::Bicubic, Size::new(width, height));
        assert_eq!(cubic(100, 80), Way::Copy);
        assert_eq!(cubic(50, 40), Way::Direct(INTER_AREA));
        assert_eq!(cubic(100, 40), Way::Direct(INTER_AREA));
        assert_eq!(cubic(200, 160), Way::Direct(INTER_CUBIC));
        assert_eq!(cubic(100, 81), Way::Direct(INTER_CUBIC));
        assert_eq!(cubic(50, 160), Way::ShrinkThenGrow(Size::new(50, 80), INTER_CUBIC));
        assert_eq!(way(Filter::Bilinear, Size::new(200, 160)), Way::Direct(INTER_LINEAR));
    }

    #[test]
    fn opencvs_own_filters_are_taken_as_they_are() {
        for size in [Size::new(50, 40), Size::new(50, 160), Size::new(200, 160)] {
            assert_eq!(way(Filter::OpenCvLinear, size), Way::Direct(INTER_LINEAR));
            assert_eq!(way(Filter::OpenCvArea, size), Way::Direct(INTER_AREA));
            assert_eq!(way(Filter::OpenCvCubic, size), Way::Direct(INTER_CUBIC));
        }
    }
}
