//! PCX with the `pcx` crate.

use std::io::ErrorKind;

use foveate_core::{PixelBuf, Size};
use foveate_decode::{DecodeError, ImageFormat};
use pcx::Reader;

const FORMAT: ImageFormat = ImageFormat::Pcx;

pub(crate) fn decode(encoded: &[u8], out: &mut PixelBuf) -> Result<Size, DecodeError> {
    let mut reader = Reader::from_mem(encoded).map_err(fault)?;
    let size = Size::new(reader.width().into(), reader.height().into());
    let pixels = out.reset(size)?;
    if !reader.is_paletted() {
        reader.read_rgb_pixels(pixels).map_err(fault)?;
        return Ok(size);
    }
    let width = size.width as usize;
    let mut row = vec![0; width];
    // Indexes wait in the first third of each row for the palette, which is at the end of the file.
    for target in pixels.chunks_exact_mut(3 * width) {
        reader.next_row_paletted(&mut row).map_err(fault)?;
        target[..width].copy_from_slice(&row);
    }
    let mut palette = [0; 768];
    reader.read_palette(&mut palette).map_err(fault)?;
    for target in pixels.chunks_exact_mut(3 * width) {
        row.copy_from_slice(&target[..width]);
        for (pixel, index) in target.as_chunks_mut::<3>().0.iter_mut().zip(&row) {
            let color = 3 * usize::from(*index);
            pixel.copy_from_slice(&palette[color..color + 3]);
        }
    }
    Ok(size)
}

fn fault(error: std::io::Error) -> DecodeError {
    match error.kind() {
        ErrorKind::UnexpectedEof => DecodeError::truncated(FORMAT, "the file ends early"),
        _ => DecodeError::corrupt(FORMAT, error),
    }
}
