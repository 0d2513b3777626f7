use foveate_core::{InputFormat, Size};

use crate::{Filter, ResizeError};

/// One resample: a fractional box of the source, its place in the output, and the filter. A resize followed by a crop
/// is one such box, so pixels that the crop drops are never computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResizePlan {
    /// The part of the source to resample, in source pixels.
    pub source: SourceBox,
    /// Size of the output.
    pub output: Size,
    /// The part of the output that `source` fills: all of it, unless a crop is larger than the resized image. The rest
    /// of the output is black (0).
    pub placement: Placement,
    /// The interpolation.
    pub filter: Filter,
}

/// A rectangle in source pixels; its edges may lie between pixels. The filter's support may reach beyond the box into
/// the rest of the image, as when the whole image is resized and then cropped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceBox {
    /// Left edge.
    pub x: f64,
    /// Top edge.
    pub y: f64,
    /// Width, positive.
    pub width: f64,
    /// Height, positive.
    pub height: f64,
}

impl SourceBox {
    /// All of an image of `size`.
    pub fn whole(size: Size) -> Self {
        Self { x: 0.0, y: 0.0, width: f64::from(size.width), height: f64::from(size.height) }
    }
}

/// A rectangle of whole pixels inside an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Left column.
    pub x: u32,
    /// Top row.
    pub y: u32,
    /// Width and height, not empty.
    pub size: Size,
}

impl Placement {
    /// All of an output of `size`.
    pub const fn whole(size: Size) -> Self {
        Self { x: 0, y: 0, size }
    }
}

/// A plan for libraries without fractional boxes: resize the whole source, then keep a part of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TwoSteps {
    /// Size of the resized whole source.
    pub scaled: Size,
    /// Column and row of the first kept pixel; the kept part has the placement's size.
    pub keep_from: [u32; 2],
}

/// Most by which rounding may push a box beyond its image, as a fraction of the image's side.
const EDGE_SLACK: f64 = 1e-9;

impl ResizePlan {
    /// A plan that fills the whole `output` from `source`.
    pub const fn new(source: SourceBox, output: Size, filter: Filter) -> Self {
        Self { source, output, placement: Placement::whole(output), filter }
    }

    /// Size and samples of the output.
    pub const fn format(&self) -> InputFormat {
        InputFormat { size: self.output, sample: self.filter.sample() }
    }

    /// Returns true if some of the output stays black.
    pub fn is_padded(&self) -> bool {
        self.placement != Placement::whole(self.output)
    }

    /// The size of the *whole* source at this plan's scale: for a resize followed by a crop, the size between the two.
    /// Each side is at least 1, saturating.
    pub fn scaled(&self, source: Size) -> Size {
        let target = self.placement.size;
        let width = f64::from(source.width) * f64::from(target.width) / self.source.width;
        let height = f64::from(source.height) * f64::from(target.height) / self.source.height;
        // `as` saturates, as intended here.
        Size::new(width.round().max(1.0) as u32, height.round().max(1.0) as u32)
    }

    /// Splits this plan, which must fit `source`, into two steps; `None` for a box that lies between the resized
    /// image's pixels. Every plan made by a [`Geometry`](crate::Geometry) has them, unless the image between the steps
    /// would have more than `u32::MAX` pixels on a side.
    pub fn two_steps(&self, source: Size) -> Option<TwoSteps> {
        let part = self.source;
        let target = self.placement.size;
        let (width, x) = steps(part.x, part.width, source.width, target.width)?;
        let (height, y) = steps(part.y, part.height, source.height, target.height)?;
        Some(TwoSteps { scaled: Size::new(width, height), keep_from: [x, y] })
    }

    /// Refuses a plan that does not fit a source image and an output of these sizes. Resizers call it first, so that
    /// every backend refuses the same plans with the same message.
    pub fn check(&self, source: Size, output: Size) -> Result<(), ResizeError> {
        if source.is_empty() || self.output.is_empty() || self.placement.size.is_empty() {
            let reason = format!("nothing to resample ({source} to {} in {})", self.placement.size, self.output);
            return Err(ResizeError::Plan(reason));
        }
        if self.output != output {
            return Err(ResizeError::Plan(format!("it makes {}, the output is {output}", self.output)));
        }
        let Placement { x, y, size } = self.placement;
        for (at, len, whole) in [(x, size.width, output.width), (y, size.height, output.height)] {
            if at.checked_add(len).is_none_or(|end| end > whole) {
                return Err(ResizeError::Plan(format!("{size} at ({x}, {y}) leaves the output of {output}")));
            }
        }
        let SourceBox { x, y, width, height } = self.source;
        for (at, len, whole) in [(x, width, source.width), (y, height, source.height)] {
            let slack = f64::from(whole) * EDGE_SLACK;
            let is_inside = at >= -slack && len > 0.0 && at + len <= f64::from(whole) + slack; // false for NaN
            if !is_inside {
                let reason = format!("box {width} × {height} at ({x}, {y}) leaves the image of {source}");
                return Err(ResizeError::Plan(reason));
            }
        }
        Ok(())
    }
}

/// One axis of [`TwoSteps`]: its length between the steps, and the first kept pixel.
fn steps(at: f64, len: f64, source: u32, target: u32) -> Option<(u32, u32)> {
    let whole = f64::from(source);
    let kept = f64::from(target);
    let scaled = (whole * kept / len).round();
    let scale = whole / scaled;
    let skipped = (at / scale).round();
    let slack = whole * EDGE_SLACK;
    let is_cut =
        (skipped * scale - at).abs() <= slack && (kept * scale - len).abs() <= slack && skipped + kept <= scaled;
    // Both are whole numbers and at least 0, so a cast in range is exact.
    (is_cut && scaled <= f64::from(u32::MAX)).then_some((scaled as u32, skipped as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Geometry;

    const SOURCE: Size = Size::new(10, 8);
    const OUTPUT: Size = Size::new(4, 4);

    fn plan(x: f64, y: f64, width: f64, height: f64) -> ResizePlan {
        ResizePlan::new(SourceBox { x, y, width, height }, OUTPUT, Filter::Bicubic)
    }

    #[test]
    fn a_fitting_plan_is_accepted() {
        plan(0.0, 0.0, 10.0, 8.0).check(SOURCE, OUTPUT).unwrap();
        plan(2.5, 1.25, 7.5, 6.75).check(SOURCE, OUTPUT).unwrap();
    }

    #[test]
    fn boxes_outside_of_the_image_are_refused() {
        for (x, y, w, h) in [
            (-0.1, 0.0, 5.0, 5.0),
            (6.0, 0.0, 5.0, 5.0),
            (0.0, 4.0, 5.0, 5.0),
            (0.0, 0.0, 0.0, 5.0),
            (0.0, 0.0, f64::NAN, 5.0),
            (f64::INFINITY, 0.0, 5.0, 5.0),
        ] {
            let error = plan(x, y, w, h).check(SOURCE, OUTPUT).unwrap_err();
            assert!(matches!(error, ResizeError::Plan(_)), "{x} {y} {w} {h}");
        }
    }

    #[test]
    fn outputs_of_another_size_and_placements_outside_are_refused() {
        let good = plan(0.0, 0.0, 10.0, 8.0);
        assert!(good.check(SOURCE, Size::new(4, 5)).is_err());
        for placement in [
            Placement { x: 1, y: 0, size: OUTPUT },
            Placement { x: 0, y: u32::MAX, size: OUTPUT },
            Placement { x: 0, y: 0, size: Size::default() },
        ] {
            assert!(ResizePlan { placement, ..good }.check(SOURCE, OUTPUT).is_err(), "{placement:?}");
        }
    }

    #[test]
    fn a_resize_and_crop_comes_apart_again() {
        for (source, edge, side) in [
            (Size::new(640, 427), 256, 224),
            (Size::new(50, 2000), 256, 224),
            (Size::new(1, 1), 256, 224),
            (Size::new(100, 150), 32, 41), // larger than the resized image
            (Size::new(1, 60_000), 32, 28),
        ] {
            let crop = Geometry::ShortestEdgeCrop {
                edge,
                longest: None,
                crop: Size::square(side),
                filter: Filter::Bicubic,
                ties: crate::CropTies::Down,
            };
            let plan = crop.plan(source);
            let scaled = plan.scaled(source);
            let margin = |whole: u32| whole.saturating_sub(side) / 2;
            let keep_from = [margin(scaled.width), margin(scaled.height)];
            assert_eq!(plan.two_steps(source), Some(TwoSteps { scaled, keep_from }), "{source}");
        }
        assert_eq!(
            plan(2.0, 1.0, 4.0, 4.0).two_steps(SOURCE),
            Some(TwoSteps { scaled: SOURCE, keep_from: [2, 1] }),
            "a cut of whole pixels"
        );
    }

    #[test]
    fn boxes_between_the_pixels_have_no_two_steps() {
        for (x, y, w, h) in [(0.5, 0.0, 5.0, 4.0), (0.0, 0.0, 5.1, 4.0), (0.0, 0.1, 10.0, 4.0)] {
            assert_eq!(plan(x, y, w, h).two_steps(SOURCE), None, "{x} {y} {w} {h}");
        }
        let long = Size::new(1, 100_000_000);
        let hf = Geometry::ShortestEdgeCrop {
            edge: 256,
            longest: None,
            crop: OUTPUT,
            filter: Filter::Bicubic,
            ties: crate::CropTies::Down,
        };
        assert_eq!(hf.plan(long).two_steps(long), None, "25 600 000 000 rows");
    }

    #[test]
    fn empty_images_are_refused() {
        assert!(plan(0.0, 0.0, 1.0, 1.0).check(Size::new(0, 5), OUTPUT).is_err());
    }
}
