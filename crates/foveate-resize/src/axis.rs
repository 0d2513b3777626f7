//! A plan split by axis, for resizers that make one pass along each.

use foveate_core::Size;

use crate::ResizePlan;

/// One axis of a resample: `len` source pixels from `at`, in a source of `whole`, become `target` pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// First source pixel; may lie between two pixels.
    pub at: f64,
    /// Number of source pixels; the last may be partial.
    pub len: f64,
    /// Pixels of the source along this axis.
    pub whole: u32,
    /// Pixels of the result along this axis.
    pub target: u32,
}

impl Axis {
    /// The part of a plan along one axis, clipped to the image. Rounding can push a box beyond the image by the last
    /// bit, and fast_image_resize refuses such a box.
    pub fn new(at: f64, len: f64, whole: u32, target: u32) -> Self {
        let at = at.max(0.0);
        let mut len = len.min(f64::from(whole) - at);
        if at + len > f64::from(whole) {
            len = len.next_down();
        }
        Self { at, len, whole, target }
    }

    /// Pixels `[0, len)`, unchanged.
    pub fn unchanged(len: u32) -> Self {
        Self { at: 0.0, len: f64::from(len), whole: len, target: len }
    }

    /// Returns true if the resample only copies pixels.
    pub fn is_copy(self) -> bool {
        self.len == f64::from(self.target) && self.at.fract() == 0.0
    }

    /// The source pixels `[first, end)` that any output pixel may read through a kernel that reaches `support` output
    /// pixels to each side.
    pub fn reads(self, support: f64) -> (u32, u32) {
        let scale = self.len / f64::from(self.target);
        let reach = support * scale.max(1.0) - 0.5 * scale; // from the first and last outputs' centres
        let first = (self.at - reach).floor().max(0.0) as u32;
        let end = (self.at + self.len + reach).ceil().min(f64::from(self.whole)) as u32;
        (first, end)
    }

    /// The same samples, addressed in an image that holds only pixels `[first, end)` of the source.
    pub fn within(self, (first, end): (u32, u32)) -> Self {
        Self { at: self.at - f64::from(first), whole: end - first, ..self }
    }

    /// Returns true if this is a shrink by two on whole pixel pairs.
    pub fn halves(self) -> bool {
        self.len == 2.0 * f64::from(self.target) && self.at.fract() == 0.0
    }

    /// A copy of pixels `[first, end)`.
    pub fn copy_of((first, end): (u32, u32), whole: u32) -> Self {
        Self { at: f64::from(first), len: f64::from(end - first), whole, target: end - first }
    }
}

/// Both axes of a plan that fits its `source` ([`ResizePlan::check`]): columns, then rows.
pub fn axes(plan: &ResizePlan, source: Size) -> [Axis; 2] {
    let part = plan.source;
    let target = plan.placement.size;
    [
        Axis::new(part.x, part.width, source.width, target.width),
        Axis::new(part.y, part.height, source.height, target.height),
    ]
}

/// Returns true if the vertical pass comes first for an image of size `source`: Pillow's rule (since 13), unless the
/// filter is a library's that has no such rule.
pub fn vertical_first(plan: &ResizePlan, source: Size) -> bool {
    let scaled = plan.scaled(source);
    let height = i64::from(source.height) - i64::from(scaled.height);
    let width = i64::from(source.width) - i64::from(scaled.width);
    !plan.filter.is_horizontal_first() && height > 0 && height > 2 * width
}
