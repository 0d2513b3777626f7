//! Row access.

use foveate_core::{CHANNELS, ImageView, ImageViewMut, Size};
use foveate_resize::{Placement, ResizePlan};

/// The part of an output that a plan fills.
pub(crate) struct Out<'a> {
    samples: &'a mut [u8],
    /// Samples in a whole output row.
    stride: usize,
    place: Placement,
}

impl<'a> Out<'a> {
    pub(crate) fn new(plan: &ResizePlan, dst: ImageViewMut<'a>) -> Self {
        Self { samples: dst.into_slice(), stride: plan.output.width as usize * CHANNELS, place: plan.placement }
    }

    /// All of an image of `size` in `memory`, which grows if it must.
    pub(crate) fn whole(size: Size, memory: &'a mut Vec<u8>) -> Self {
        let stride = size.width as usize * CHANNELS;
        memory.resize(stride * size.height as usize, 0);
        Self { samples: memory, stride, place: Placement { x: 0, y: 0, size } }
    }

    /// Row `index` of the part.
    pub(crate) fn row(&mut self, index: usize) -> &mut [u8] {
        let start = (self.place.y as usize + index) * self.stride + self.place.x as usize * CHANNELS;
        &mut self.samples[start..][..self.place.size.width as usize * CHANNELS]
    }

    /// The part's number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.place.size.height as usize
    }
}

/// Row `row` of an image.
pub(crate) fn source_row(src: ImageView<'_>, row: usize) -> &[u8] {
    let len = src.size().width as usize * CHANNELS;
    &src.as_slice()[row * len..][..len]
}
