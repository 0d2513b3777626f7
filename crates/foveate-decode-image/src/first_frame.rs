//! The first picture of formats that can hold an animation, laid on its canvas the way Pillow lays it.

use std::num::NonZeroU64;

use foveate_core::{PixelBuf, Size};
use foveate_decode::{DecodeError, ImageFormat};
use gif::{ColorOutput, DecodeOptions, DecodingError, MemoryLimit};

/// Decodes the first frame of a GIF, using `indices` as scratch.
///
/// As in Pillow, the canvas grows to hold the frame, and what the frame does not cover has the frame's transparent
/// colour, or colour 0 when it has none. Transparent pixels show their palette entry. (The `image` crate's decoder
/// keeps the screen's size and shows black there.)
pub(crate) fn gif(encoded: &[u8], indices: &mut Vec<u8>, out: &mut PixelBuf) -> Result<Size, DecodeError> {
    let budget = NonZeroU64::new(crate::memory_budget(out.limits())).unwrap_or(NonZeroU64::MIN);
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    options.set_memory_limit(MemoryLimit::Bytes(budget));
    let mut decoder = options.read_info(encoded).map_err(gif_fault)?;
    let screen = Size::new(decoder.width().into(), decoder.height().into());
    let Some(frame) = decoder.next_frame_info().map_err(gif_fault)? else {
        return Err(corrupt("it holds no picture".to_owned()));
    };
    let extent = Size::new(frame.width.into(), frame.height.into());
    let (left, top, transparent) = (u32::from(frame.left), u32::from(frame.top), frame.transparent);
    let canvas = Size::new(screen.width.max(left + extent.width), screen.height.max(top + extent.height));
    out.limits().check(canvas)?;
    out.limits().check(extent)?;
    indices.clear();
    indices.resize(decoder.buffer_size(), 0);
    decoder.read_into_buffer(indices).map_err(gif_fault)?;
    let colors = colors(decoder.palette().ok());

    let background = colors[usize::from(transparent.unwrap_or(0))];
    let (pixels, _) = out.reset(canvas)?.as_chunks_mut();
    if canvas != extent {
        pixels.fill(background);
    }
    let rows = pixels.chunks_exact_mut(canvas.width as usize).skip(top as usize);
    for (row, line) in rows.zip(indices.chunks_exact(extent.width as usize)) {
        for (pixel, &index) in row[left as usize..].iter_mut().zip(line) {
            *pixel = colors[usize::from(index)];
        }
    }
    Ok(canvas)
}

/// All 256 colours: the palette, and gray levels where it has none.
fn colors(palette: Option<&[u8]>) -> [[u8; 3]; 256] {
    let mut colors = std::array::from_fn(|i| [i as u8; 3]);
    let (entries, _) = palette.unwrap_or_default().as_chunks::<3>();
    for (color, entry) in colors.iter_mut().zip(entries) {
        *color = *entry;
    }
    colors
}

fn gif_fault(error: DecodingError) -> DecodeError {
    let format = ImageFormat::Gif;
    match error {
        DecodingError::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            DecodeError::Truncated { format, reason: "the file ends early".to_owned() }
        }
        DecodingError::MemoryLimit | DecodingError::OutOfMemory => {
            DecodeError::TooCostly("GIF takes too much memory to decode (raise the limit with --max-pixels)".to_owned())
        }
        other => corrupt(other.to_string()),
    }
}

fn corrupt(reason: String) -> DecodeError {
    DecodeError::Corrupt { format: ImageFormat::Gif, reason }
}
