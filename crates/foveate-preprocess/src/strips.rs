use std::time::{Duration, Instant};

use foveate_core::{ImageView, ImageViewMut, Region, Size};
use foveate_decode::RowSink;
use foveate_resize::{Geometry, ResizeError, ResizePlan, RowResizer};

/// Resizes an image's strips as a decoder hands them out.
pub(crate) struct ResizerStrips<'a> {
    resizer: &'a mut dyn RowResizer,
    geometry: Geometry,
    size: Size,
    /// Time spent on resizing so far.
    pub(crate) resizing: Duration,
    /// The first error; later strips are ignored.
    outcome: Result<(), ResizeError>,
}

impl<'a> ResizerStrips<'a> {
    pub(crate) fn new(resizer: &'a mut dyn RowResizer, geometry: Geometry) -> Self {
        Self { resizer, geometry, size: Size::default(), resizing: Duration::ZERO, outcome: Ok(()) }
    }

    /// Completes the output; returns the decoded image's size.
    pub(crate) fn finish(self, out: &mut [u8]) -> Result<Size, ResizeError> {
        self.outcome?;
        let output = self.geometry.output();
        let out = ImageViewMut::new(out, output)
            .ok_or_else(|| ResizeError::Plan(format!("the output is not of size {output}")))?;
        self.resizer.finish(out)?;
        Ok(self.size)
    }

    fn plan(&self) -> ResizePlan {
        self.geometry.plan(self.size)
    }
}

impl RowSink for ResizerStrips<'_> {
    fn begin(&mut self, size: Size) -> Option<Region> {
        (self.size, self.outcome) = (size, Ok(()));
        self.resizer.begin(size, &self.plan())
    }

    fn rows(&mut self, samples: &[u8]) {
        if self.outcome.is_err() {
            return;
        }
        let rows = samples.len() / Size::new(self.size.width, 1).rgb_len().unwrap_or(usize::MAX).max(1);
        let strip = ImageView::new(samples, Size::new(self.size.width, rows as u32));
        let start = Instant::now();
        self.outcome = match strip {
            Some(strip) => self.resizer.push(strip),
            None => Err(ResizeError::Plan("a strip is not of whole rows".into())),
        };
        self.resizing += start.elapsed();
    }
}
