use std::fmt;
use std::ops::Range;

/// Samples per pixel: every image in the engine is RGB.
pub const CHANNELS: usize = 3;

/// Width and height of an image in pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Size {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Size {
    /// A size of `width` columns by `height` rows.
    pub const fn new(width: u32, height: u32) -> Self {
        Self { width, height }
    }

    /// A square of `side` pixels.
    pub const fn square(side: u32) -> Self {
        Self::new(side, side)
    }

    /// Number of pixels; cannot overflow.
    pub const fn pixels(self) -> u64 {
        self.width as u64 * self.height as u64
    }

    /// Bytes of an RGB8 image of this size, or `None` if they exceed the address space.
    pub fn rgb_len(self) -> Option<usize> {
        usize::try_from(self.pixels()).ok()?.checked_mul(CHANNELS)
    }

    /// The shorter side.
    pub const fn min_side(self) -> u32 {
        if self.width < self.height { self.width } else { self.height }
    }

    /// Returns true if the image has no pixels.
    pub const fn is_empty(self) -> bool {
        self.width == 0 || self.height == 0
    }

    /// Width and height swapped.
    #[must_use]
    pub const fn transposed(self) -> Self {
        Self::new(self.height, self.width)
    }
}

/// A rectangle of an image's pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Columns.
    pub columns: Range<u32>,
    /// Rows.
    pub rows: Range<u32>,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}
