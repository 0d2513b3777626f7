//! From an image's size to the passes that it needs.

use foveate_core::Size;
use foveate_resize::axis::{Axis, axes, vertical_first};
use foveate_resize::{Filter, Geometry, ResizePlan};

use super::arena::room;
use super::taps::Kernel;

/// The device's way to resample.
#[derive(Clone, Copy)]
pub(crate) enum Method {
    /// Along one axis, then along the other, with u8 between, as Pillow does.
    Convolution(Kernel),
    /// OpenCV's `INTER_LINEAR`, in one pass.
    Interpolation,
}

impl Method {
    /// Returns the way for a filter, if the device supports it.
    pub(crate) fn of(filter: Filter) -> Option<Self> {
        match filter {
            Filter::OpenCvLinear => Some(Self::Interpolation),
            filter => Kernel::of(filter).map(Self::Convolution),
        }
    }
}

/// The plan for an image of one size.
#[derive(Clone, Copy)]
pub(crate) struct ResampleRecipe {
    pub(crate) method: Method,
    pub(crate) plan: ResizePlan,
    /// The image's upright size.
    size: Size,
}

/// The passes of a convolution: the axis of each, and the part of the image, which begins `skip` columns and rows from
/// its start.
pub(crate) enum Order {
    Once {
        axis: Axis,
        down: bool,
        skip: [u32; 2],
    },
    Twice {
        axis: Axis,
        down: bool,
        skip: [u32; 2],
        /// The size of the image between the passes.
        size: Size,
        /// The other axis, of the intermediate image.
        then: Axis,
    },
}

impl ResampleRecipe {
    /// `None` if the plan does not fit the image, or the device does not support the filter.
    pub(crate) fn new(geometry: Geometry, size: Size) -> Option<Self> {
        let method = Method::of(geometry.filter())?;
        let plan = geometry.plan(size);
        plan.check(size, plan.output).ok().map(|()| Self { method, plan, size })
    }

    pub(crate) fn axes(&self) -> [Axis; 2] {
        axes(&self.plan, self.size)
    }

    /// Returns the same passes over the same parts as the CPU's resizer `fir`.
    pub(crate) fn order(&self, kernel: Kernel) -> Order {
        let [x, y] = self.axes();
        let Size { width, height } = self.plan.placement.size;
        if x.is_copy() {
            Order::Once { axis: y, down: true, skip: [x.at as u32, 0] }
        } else if y.is_copy() {
            Order::Once { axis: x, down: false, skip: [0, y.at as u32] }
        } else if vertical_first(&self.plan, self.size) {
            let (first, end) = x.reads(kernel.support);
            let then = x.within((first, end));
            Order::Twice { axis: y, down: true, skip: [first, 0], size: Size::new(end - first, height), then }
        } else {
            let (first, end) = y.reads(kernel.support);
            let then = y.within((first, end));
            Order::Twice { axis: x, down: false, skip: [0, first], size: Size::new(width, end - first), then }
        }
    }

    /// The bytes of the image between the passes.
    pub(crate) fn between(&self) -> usize {
        match self.method {
            Method::Interpolation => 0,
            Method::Convolution(kernel) => match self.order(kernel) {
                Order::Once { .. } => 0,
                Order::Twice { size, .. } => room(size),
            },
        }
    }
}
