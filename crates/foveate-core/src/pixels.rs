use std::fmt;

use crate::budget::PixelShare;
use crate::{CHANNELS, PixelBudget, Size};

/// The largest size of a decoded image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PixelLimits {
    /// Most pixels (width × height) of one image.
    pub max_pixels: u64,
}

impl PixelLimits {
    /// 100 megapixels: above any ordinary camera, below what a decompression bomb needs.
    pub const DEFAULT: Self = Self { max_pixels: 100_000_000 };

    /// Refuses an empty size and a size of more than `max_pixels` pixels. Reads no pixel and does not allocate.
    pub fn check(self, size: Size) -> Result<(), LimitError> {
        if size.is_empty() {
            Err(LimitError::Empty { size })
        } else if size.pixels() > self.max_pixels || size.rgb_len().is_none() {
            Err(LimitError::TooManyPixels { size, max_pixels: self.max_pixels })
        } else {
            Ok(())
        }
    }
}

impl Default for PixelLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The reason why a size was refused before memory was allocated for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// Width or height is zero.
    Empty {
        /// The requested size.
        size: Size,
    },
    /// More pixels than the limit allows.
    TooManyPixels {
        /// The requested size.
        size: Size,
        /// The limit in force.
        max_pixels: u64,
    },
    /// The allocator could not provide the memory.
    OutOfMemory {
        /// The requested size.
        size: Size,
    },
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { size } => write!(f, "image has no pixels ({size})"),
            Self::TooManyPixels { size, max_pixels } => {
                write!(f, "image is {size} = {} pixels, more than the limit of {max_pixels}", size.pixels())
            }
            Self::OutOfMemory { size } => write!(f, "no memory for an image of {size}"),
        }
    }
}

impl std::error::Error for LimitError {}

/// A reusable RGB8 image, `[height, width, 3]`, rows without padding, samples in 0..=255.
///
/// The caller of a decoder owns it and passes it for each image, so its memory is reused from image to image.
#[derive(Debug, Default)]
pub struct PixelBuf {
    data: Vec<u8>,
    size: Size,
    limits: PixelLimits,
    budget: Option<PixelBudget>,
    /// True if another buffer of the thread asks for the room of both.
    is_second: bool,
    /// The part of the budget that the image holds.
    share: Option<PixelShare>,
}

impl PixelBuf {
    /// What a thread may keep from image to image: the samples of the largest image that needs no turn in a budget.
    pub const KEEP_BYTES: usize = (PixelBudget::SMALL_BYTES / 2) as usize;

    /// An empty buffer that refuses images beyond `limits`.
    pub fn new(limits: PixelLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Makes large images wait for their turn in `budget`. A thread must have at most one such buffer, and one that is
    /// its [`second`](Self::second).
    #[must_use]
    pub fn with_budget(self, budget: PixelBudget) -> Self {
        Self { budget: Some(budget), ..self }
    }

    /// An empty buffer for a turned copy of this one's image, which has the room for both.
    #[must_use]
    pub fn second(&self) -> Self {
        Self { limits: self.limits, budget: self.budget.clone(), is_second: true, ..Self::default() }
    }

    /// The limits in force.
    pub fn limits(&self) -> PixelLimits {
        self.limits
    }

    /// Empties the buffer, checks the limits, and waits until the budget has room for an image of `size` and for the
    /// `scratch` bytes that its decoder takes meanwhile. Decoders that take memory before they call
    /// [`reset`](Self::reset), or take more than the image does, call this first. The room is kept until
    /// [`shrink`](Self::shrink).
    ///
    /// The RGB samples count twice if `scratch` is less: turning an image upright takes a copy.
    ///
    /// # Errors
    /// If the limits refuse the size.
    pub fn admit(&mut self, size: Size, scratch: u64) -> Result<(), LimitError> {
        self.clear();
        self.limits.check(size)?;
        let Some(budget) = self.budget.as_ref().filter(|_| !self.is_second) else { return Ok(()) };
        let rgb = size.pixels().saturating_mul(CHANNELS as u64);
        let bytes = rgb.saturating_add(scratch.max(rgb));
        if bytes > self.share.as_ref().map_or(PixelBudget::SMALL_BYTES, |share| share.bytes) {
            // Whoever waits holds nothing, or two threads could wait for each other.
            self.data = Vec::new();
            self.share = None;
            self.share = Some(budget.take(bytes));
        }
        Ok(())
    }

    /// Sets the size, **checking the limits before it allocates**, like [`admit`](Self::admit), and returns the samples
    /// for overwriting. Their content is unspecified (left over from earlier images). On error the buffer is empty.
    pub fn reset(&mut self, size: Size) -> Result<&mut [u8], LimitError> {
        self.admit(size, 0)?;
        let len = size.rgb_len().ok_or(LimitError::OutOfMemory { size })?;
        if len > Self::KEEP_BYTES.max(self.data.len())
            && let Some(budget) = &self.budget
        {
            self.data = Vec::new();
            self.data = budget.spare(len);
        }
        if let Some(more) = len.checked_sub(self.data.len()) {
            self.data.try_reserve_exact(more).map_err(|_| LimitError::OutOfMemory { size })?;
            self.data.resize(len, 0);
        }
        self.size = size;
        Ok(&mut self.data[..len])
    }

    /// Makes the buffer empty; decoders call this before they return an error.
    pub fn clear(&mut self) {
        self.size = Size::default();
    }

    /// Exchanges the images of two buffers, which keep their limits and budgets.
    pub fn swap(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.data, &mut other.data);
        std::mem::swap(&mut self.size, &mut other.size);
    }

    /// Gives memory beyond a fixed allowance to the budget for other images, or without one to the allocator, and the
    /// image's room to other threads.
    pub fn shrink(&mut self) {
        self.share = None;
        if self.data.len() > Self::KEEP_BYTES {
            self.clear();
            let buffer = std::mem::take(&mut self.data);
            if let Some(budget) = &self.budget {
                budget.keep(buffer);
            }
        }
    }

    /// Size of the image held; 0×0 when empty.
    pub fn size(&self) -> Size {
        self.size
    }

    /// The samples, `height * width * 3` of them.
    pub fn as_slice(&self) -> &[u8] {
        &self.data[..self.len()]
    }

    /// The samples, mutable.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = self.len();
        &mut self.data[..len]
    }

    /// A view of the whole image.
    pub fn view(&self) -> ImageView<'_> {
        ImageView { data: self.as_slice(), size: self.size }
    }

    fn len(&self) -> usize {
        self.size.rgb_len().unwrap_or(0)
    }
}

/// A borrowed RGB8 image, `[height, width, 3]`, rows without padding.
#[derive(Clone, Copy, Debug)]
pub struct ImageView<'a> {
    data: &'a [u8],
    size: Size,
}

impl<'a> ImageView<'a> {
    /// Wraps `data`; `None` unless it is exactly `height * width * 3` long.
    pub fn new(data: &'a [u8], size: Size) -> Option<Self> {
        (size.rgb_len() == Some(data.len())).then_some(Self { data, size })
    }

    /// Width and height.
    pub fn size(self) -> Size {
        self.size
    }

    /// The samples.
    pub fn as_slice(self) -> &'a [u8] {
        self.data
    }

    /// The three samples of one pixel; panics outside the image.
    pub fn pixel(self, x: u32, y: u32) -> [u8; CHANNELS] {
        let at = (y as usize * self.size.width as usize + x as usize) * CHANNELS;
        [self.data[at], self.data[at + 1], self.data[at + 2]]
    }
}

/// A borrowed, writable RGB8 image, `[height, width, 3]`, rows without padding.
#[derive(Debug)]
pub struct ImageViewMut<'a> {
    data: &'a mut [u8],
    size: Size,
}

impl<'a> ImageViewMut<'a> {
    /// Wraps `data`; `None` unless it is exactly `height * width * 3` long.
    pub fn new(data: &'a mut [u8], size: Size) -> Option<Self> {
        (size.rgb_len() == Some(data.len())).then_some(Self { data, size })
    }

    /// Width and height.
    pub fn size(&self) -> Size {
        self.size
    }

    /// The samples.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.data
    }

    /// The samples, for as long as the view's borrow lasts.
    pub fn into_slice(self) -> &'a mut [u8] {
        self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bomb_is_refused_before_memory_is_taken() {
        let mut buf = PixelBuf::new(PixelLimits::DEFAULT);
        let bomb = Size::square(60_000);
        assert_eq!(buf.reset(bomb), Err(LimitError::TooManyPixels { size: bomb, max_pixels: 100_000_000 }));
        assert_eq!(buf.data.capacity(), 0);
    }

    #[test]
    fn a_refused_size_leaves_the_buffer_empty() {
        let mut buf = PixelBuf::new(PixelLimits { max_pixels: 10 });
        buf.reset(Size::new(2, 3)).unwrap();
        assert!(buf.reset(Size::new(0, 3)).is_err());
        assert_eq!((buf.size(), buf.as_slice().len()), (Size::default(), 0));
    }

    #[test]
    fn memory_is_reused_for_smaller_images() {
        let mut buf = PixelBuf::default();
        buf.reset(Size::new(10, 10)).unwrap();
        let before = buf.data.as_ptr();
        assert_eq!(buf.reset(Size::new(4, 5)).unwrap().len(), 60);
        assert_eq!(buf.data.as_ptr(), before);
    }

    #[test]
    fn large_images_hold_a_share_until_the_buffer_shrinks() {
        let budget = PixelBudget::default();
        let mut buf = PixelBuf::default().with_budget(budget.clone());
        let small = Size::new(2048, 2730);
        buf.reset(small).unwrap();
        buf.shrink();
        assert!(buf.share.is_none() && buf.data.len() == small.rgb_len().unwrap());
        buf.admit(small, PixelBudget::SMALL_BYTES).unwrap();
        assert_eq!(buf.share.as_ref().map(|share| share.bytes), Some(PixelBudget::SMALL_BYTES + 3 * small.pixels()));
        // Another decoder of the same image asks for more.
        buf.admit(small, PixelBudget::DEFAULT_BYTES).unwrap();
        buf.reset(Size::square(3_000)).unwrap().fill(7);
        assert!(buf.reset(Size::square(60_000)).is_err());
        buf.shrink();
        assert!(buf.share.is_none() && buf.data.is_empty());
        // Another thread's image gets the memory, up to its size.
        let mut other = PixelBuf::default().with_budget(budget.clone());
        assert!(other.reset(Size::new(3_000, 2_500)).unwrap().iter().all(|&sample| sample == 7));
        drop(other);
        // A panic drops the buffer, or whoever catches it shrinks it.
        let outcome = crate::catch_panic(|| {
            let mut buf = buf;
            buf.reset(Size::square(3_000)).map(|_| panic!("in a decoder"))
        });
        assert!(outcome.is_err());
        drop(budget.take(PixelBudget::DEFAULT_BYTES));
    }

    #[test]
    fn views_need_the_exact_length() {
        assert!(ImageView::new(&[0; 12], Size::square(2)).is_some());
        assert!(ImageView::new(&[0; 13], Size::square(2)).is_none());
        assert_eq!(ImageView::new(&[1, 2, 3, 4, 5, 6], Size::new(1, 2)).unwrap().pixel(0, 1), [4, 5, 6]);
    }
}
