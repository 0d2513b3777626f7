//! The destinations of a picture's rows.

use foveate_core::{PixelBuf, Region, Size};
use foveate_decode::{DecodeError, RowSink};

/// Pixels of a strip. Resizers pay for every strip, and cores share their caches' room with the planes.
const STRIP_PIXELS: usize = 1 << 19;

/// The memory that rows are decoded into, from top to bottom.
pub(crate) trait PixelOutput {
    /// Prepares for a picture whose rows come at most `most_rows` at a time; returns the wanted part, or `None` if the
    /// picture is not wanted.
    fn begin(&mut self, size: Size, most_rows: usize) -> Result<Option<Region>, DecodeError>;

    /// The next `count` wanted rows, whole. They are complete when this is called again, and after the picture.
    fn rows(&mut self, count: usize) -> &mut [[u8; 3]];
}

/// The whole picture.
pub(crate) struct Whole<'a> {
    pixels: &'a mut PixelBuf,
    next: usize,
}

impl<'a> Whole<'a> {
    pub(crate) fn new(pixels: &'a mut PixelBuf) -> Self {
        Self { pixels, next: 0 }
    }
}

impl PixelOutput for Whole<'_> {
    fn begin(&mut self, size: Size, _most_rows: usize) -> Result<Option<Region>, DecodeError> {
        self.pixels.reset(size)?;
        self.next = 0;
        Ok(Some(Region { columns: 0..size.width, rows: 0..size.height }))
    }

    fn rows(&mut self, count: usize) -> &mut [[u8; 3]] {
        let len = count * self.pixels.size().width as usize;
        let (pixels, _) = self.pixels.as_mut_slice().as_chunks_mut();
        let rows = &mut pixels[self.next..self.next + len];
        self.next += len;
        rows
    }
}

/// One strip after another, for a sink.
pub(crate) struct OutputStrips<'a> {
    strip: &'a mut PixelBuf,
    sink: &'a mut dyn RowSink,
    /// Pixels of the strip that hold rows.
    filled: usize,
}

impl<'a> OutputStrips<'a> {
    pub(crate) fn new(strip: &'a mut PixelBuf, sink: &'a mut dyn RowSink) -> Self {
        Self { strip, sink, filled: 0 }
    }

    /// Hands out the rows so far.
    pub(crate) fn flush(&mut self) {
        let (pixels, _) = self.strip.as_slice().as_chunks::<3>();
        self.sink.rows(pixels[..self.filled].as_flattened());
        self.filled = 0;
    }
}

impl PixelOutput for OutputStrips<'_> {
    fn begin(&mut self, size: Size, most_rows: usize) -> Result<Option<Region>, DecodeError> {
        let Some(wanted) = self.sink.begin(size) else { return Ok(None) };
        let rows = (STRIP_PIXELS / size.width.max(1) as usize).max(most_rows);
        let height = u32::try_from(rows).unwrap_or(u32::MAX).min(size.height);
        self.strip.reset(Size::new(size.width, height))?;
        self.filled = 0;
        Ok(Some(wanted))
    }

    fn rows(&mut self, count: usize) -> &mut [[u8; 3]] {
        let Size { width, height } = self.strip.size();
        let len = count * width as usize;
        if self.filled + len > width as usize * height as usize {
            self.flush();
        }
        let (pixels, _) = self.strip.as_mut_slice().as_chunks_mut();
        let rows = &mut pixels[self.filled..self.filled + len];
        self.filled += len;
        rows
    }
}
