//! Pixels of a JPEG by libjpeg-turbo-rs, for ctypes.

use std::cell::RefCell;

use libjpeg_turbo_rs::{Decoder, PixelFormat, Result, ScalingFactor};

thread_local! {
    /// The pixels of the last photo: one buffer for all photos, as the library advises.
    static PIXELS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Decodes to RGB at 1/`divisor` of the size and stores where the pixels are. Returns their number of bytes, or 0 for a
/// file that the library refuses. They are valid until the thread's next call.
///
/// # Safety
/// `data` must be `length` readable bytes, and `pixels` must be writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn decode(data: *const u8, length: usize, divisor: u32, pixels: *mut *const u8) -> usize {
    // SAFETY: as the caller says.
    let data = unsafe { std::slice::from_raw_parts(data, length) };
    PIXELS.with_borrow_mut(|buffer| {
        let decoded = decode_into(data, divisor, buffer).unwrap_or(0);
        // SAFETY: as the caller says.
        unsafe { pixels.write(buffer.as_ptr()) };
        decoded
    })
}

/// Decodes to RGB at 1/`divisor` of the size into the start of `buffer`, which grows as needed; returns the number of
/// bytes.
///
/// # Errors
/// Those of the library.
pub fn decode_into(data: &[u8], divisor: u32, buffer: &mut Vec<u8>) -> Result<usize> {
    let mut decoder = Decoder::new(data)?;
    decoder.set_output_format(PixelFormat::Rgb);
    decoder.set_scale(ScalingFactor::try_new(1, divisor)?);
    let bytes = decoder.output_buffer_size()?;
    if buffer.len() < bytes {
        buffer.resize(bytes, 0);
    }
    decoder.decode_image_into(&mut buffer[..bytes])?;
    Ok(bytes)
}
