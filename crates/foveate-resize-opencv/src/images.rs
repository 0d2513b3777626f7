//! Wraps borrowed memory as OpenCV's images, and converts plans' rectangles to OpenCV's.

use foveate_core::Size;
use foveate_resize::{Placement, ResizeError, TwoSteps};
use opencv::boxed_ref::{BoxedRef, BoxedRefMut};
use opencv::core::{Mat, Rect, Vec3b};

use crate::library;

/// Wraps `rgb`, `[height, width, 3]`, for reading.
pub(crate) fn readable(rgb: &[u8], size: Size) -> Result<BoxedRef<'_, Mat>, ResizeError> {
    Mat::new_rows_cols_with_bytes::<Vec3b>(side(size.height)?, side(size.width)?, rgb).map_err(library::fault)
}

/// Wraps `rgb`, `[height, width, 3]`, for writing.
pub(crate) fn writable(rgb: &mut [u8], size: Size) -> Result<BoxedRefMut<'_, Mat>, ResizeError> {
    Mat::new_rows_cols_with_bytes_mut::<Vec3b>(side(size.height)?, side(size.width)?, rgb).map_err(library::fault)
}

/// The part of `scratch` that an image of `size` needs.
pub(crate) fn scratch(scratch: &mut Vec<u8>, size: Size) -> Result<&mut [u8], ResizeError> {
    let reserved = size.rgb_len().filter(|len| scratch.try_reserve_exact(len.saturating_sub(scratch.len())).is_ok());
    let len = reserved.ok_or_else(|| ResizeError::Backend(format!("no memory for an image of {size}").into()))?;
    if len > scratch.len() {
        scratch.resize(len, 0);
    }
    Ok(&mut scratch[..len])
}

/// The target rectangle of a plan's result.
pub(crate) fn placed(place: Placement) -> Result<Rect, ResizeError> {
    rectangle([place.x, place.y], place.size)
}

/// The kept part of the resized image.
pub(crate) fn kept(steps: TwoSteps, place: Placement) -> Result<Rect, ResizeError> {
    rectangle(steps.keep_from, place.size)
}

fn rectangle([x, y]: [u32; 2], size: Size) -> Result<Rect, ResizeError> {
    Ok(Rect::new(side(x)?, side(y)?, side(size.width)?, side(size.height)?))
}

fn side(pixels: u32) -> Result<i32, ResizeError> {
    i32::try_from(pixels).map_err(|_| ResizeError::Backend(format!("OpenCV has no side of {pixels} pixels").into()))
}
