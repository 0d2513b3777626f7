//! The layout of images in the arena.

use foveate_core::{CHANNELS, Size};

/// The bytes behind an image that the kernels may read.
pub(super) const SLACK: usize = 15;

/// The distance between rows: whole words, so that the kernels read words.
pub(crate) fn pitch(width: u32) -> usize {
    (width as usize * CHANNELS).next_multiple_of(4)
}

/// The bytes of an image, and of those behind it.
pub(crate) fn room(size: Size) -> usize {
    pitch(size.width).saturating_mul(size.height as usize).saturating_add(SLACK)
}
