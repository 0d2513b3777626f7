//! The first picture of formats that can hold an animation, placed on its canvas as in Pillow.

use std::borrow::Cow;
use std::num::NonZeroU64;

use foveate_core::{CHANNELS, PixelBuf, Size};
use foveate_decode::{DecodeError, DecoderOptions, ImageFormat};
use gif::{ColorOutput, DecodeOptions, DecodingError, MemoryLimit};

/// Decodes the first frame of a GIF, using `indices` as scratch.
///
/// As in Pillow, the canvas grows to hold the frame. Area outside the frame has the frame's transparent colour, or
/// colour 0 if it has none. Transparent pixels show their palette entry. (The `image` crate's decoder keeps the
/// screen's size and shows black there.)
///
/// Of a truncated frame, if that is accepted, Pillow keeps the pixels in whole blocks of data. The others look like the
/// area outside the frame.
pub(crate) fn gif(
    encoded: &[u8],
    options: &DecoderOptions,
    indices: &mut Vec<u8>,
    out: &mut PixelBuf,
) -> Result<Size, DecodeError> {
    let closed = if options.allow_truncated { closed_gif(encoded) } else { None };
    let budget = NonZeroU64::new(crate::memory::budget(out.limits())).unwrap_or(NonZeroU64::MIN);
    let mut library = DecodeOptions::new();
    library.set_color_output(ColorOutput::Indexed);
    library.set_memory_limit(MemoryLimit::Bytes(budget));
    let mut decoder = library.read_info(closed.as_deref().unwrap_or(encoded)).map_err(gif_fault)?;
    let screen = Size::new(decoder.width().into(), decoder.height().into());
    let Some(frame) = decoder.next_frame_info().map_err(gif_fault)? else {
        return Err(DecodeError::corrupt(ImageFormat::Gif, "it holds no picture"));
    };
    let extent = Size::new(frame.width.into(), frame.height.into());
    let left = u32::from(frame.left);
    let top = u32::from(frame.top);
    let is_interlaced = frame.interlaced;
    let outside = frame.transparent.unwrap_or(0);
    let canvas = Size::new(screen.width.max(left + extent.width), screen.height.max(top + extent.height));
    out.limits().check(extent)?;
    out.admit(canvas, extent.pixels())?;
    indices.clear();
    indices.resize(decoder.buffer_size(), outside);
    // Not `read_into_buffer`, which loses the end of an interlaced picture: the last code may span several rows.
    let is_whole = match decoder.fill_buffer(indices) {
        // The library wants a block, even an empty one.
        Err(DecodingError::UnexpectedEof) if closed.is_some() => false,
        outcome => outcome.map_err(gif_fault)?,
    };
    if !is_whole && closed.is_none() {
        return Err(DecodeError::truncated(ImageFormat::Gif, "its data ends early"));
    }
    let colors = colors(decoder.palette().unwrap_or_default());

    let background = colors[usize::from(outside)];
    let (pixels, _) = out.reset(canvas)?.as_chunks_mut();
    if canvas != extent {
        pixels.fill(background);
    }
    let stored = indices.chunks_exact(extent.width as usize);
    for (line, y) in stored.zip(row_order(extent.height as usize, is_interlaced)) {
        let row = &mut pixels[(top as usize + y) * canvas.width as usize + left as usize..];
        for (pixel, &index) in row.iter_mut().zip(line) {
            *pixel = colors[usize::from(index)];
        }
    }
    Ok(canvas)
}

/// A file whose first frame is cut off, up to the last whole block of its data and with an end; `None` for one with a
/// whole frame, or with none.
fn closed_gif(encoded: &[u8]) -> Option<Vec<u8>> {
    /// Length of a palette: a flag in bit 7 says whether there is one, the lowest three bits how large it is.
    fn palette(flags: u8) -> usize {
        if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
    }
    let mut at = 13 + palette(*encoded.get(10)?);
    loop {
        at = match *encoded.get(at)? {
            b'!' => after_blocks(encoded, at + 2).ok()?,
            b',' => break,
            _ => return None,
        };
    }
    let data = at + 11 + palette(*encoded.get(at + 9)?);
    encoded.get(data - 1)?;
    after_blocks(encoded, data).err().map(|end| [&encoded[..end], b"\0;"].concat())
}

/// Returns the end of a run of blocks, each behind its length, the last one empty; or an error with the end of the last
/// whole block if the run is cut off.
fn after_blocks(encoded: &[u8], mut at: usize) -> Result<usize, usize> {
    loop {
        let length = usize::from(*encoded.get(at).ok_or(at)?);
        let end = at + 1 + length;
        if end > encoded.len() {
            return Err(at);
        }
        if length == 0 {
            return Ok(end);
        }
        at = end;
    }
}

/// The place of each stored row: every eighth row, then those in the middle between them, three times.
fn row_order(height: usize, is_interlaced: bool) -> impl Iterator<Item = usize> {
    const PASSES: [(usize, usize); 4] = [(0, 8), (4, 8), (2, 4), (1, 2)];
    let passes = if is_interlaced { &PASSES[..] } else { &[(0, 1)] };
    passes.iter().flat_map(move |&(first, step)| (first..height).step_by(step))
}

/// All 256 colours: the palette, and black.
fn colors(palette: &[u8]) -> [[u8; 3]; 256] {
    let mut colors = [[0; 3]; 256];
    let (entries, _) = palette.as_chunks();
    for (color, entry) in colors.iter_mut().zip(entries) {
        *color = *entry;
    }
    colors
}

/// An animated WebP's first frame as a separate picture, and its place on the canvas.
pub(crate) struct WebPFrame {
    /// Size of the whole animation.
    pub(crate) canvas: Size,
    /// Columns to the left of the frame.
    pub(crate) left: u32,
    /// Rows above the frame.
    pub(crate) top: u32,
    /// Size of the frame.
    pub(crate) extent: Size,
    /// A complete WebP file.
    pub(crate) still: Vec<u8>,
}

impl WebPFrame {
    /// Lays the decoded frame on a black canvas.
    pub(crate) fn place(&self, picture: &PixelBuf, out: &mut PixelBuf) -> Result<(), DecodeError> {
        let width = self.canvas.width as usize * CHANNELS;
        let left = self.left as usize * CHANNELS;
        let samples = out.reset(self.canvas)?;
        samples.fill(0);
        let lines = picture.as_slice().chunks_exact(self.extent.width as usize * CHANNELS);
        for (row, line) in samples.chunks_exact_mut(width).skip(self.top as usize).zip(lines) {
            row[left..left + line.len()].copy_from_slice(line);
        }
        Ok(())
    }
}

/// The flag for alpha in a VP8X header.
const ALPHA: u8 = 0x10;

/// Extracts an animation's first frame; `None` for a still picture and for a file too damaged to parse.
///
/// Pillow (libwebp) puts the first frame on the canvas unchanged and shows the colours of its transparent pixels once
/// alpha is dropped. The library blends the frame, which turns transparent pixels black; so it gets the frame alone.
pub(crate) fn webp(encoded: &[u8]) -> Option<WebPFrame> {
    const ANIMATED: u8 = 0x02;
    let header = riff_chunk(encoded.get(12..)?, *b"VP8X")?;
    if header.first()? & ANIMATED == 0 {
        return None;
    }
    let canvas = Size::new(u24(header, 4)? + 1, u24(header, 7)? + 1);
    let frame = riff_chunk(encoded.get(12..)?, *b"ANMF")?;
    let left = u24(frame, 0)? * 2;
    let top = u24(frame, 3)? * 2;
    let extent = Size::new(u24(frame, 6)? + 1, u24(frame, 9)? + 1);
    let fits = left + extent.width <= canvas.width && top + extent.height <= canvas.height;
    let content = frame.get(16..).filter(|_| fits)?;

    let mut still = b"RIFF\0\0\0\0WEBPVP8X\x0A\0\0\0".to_vec();
    // The flag must match this frame; the animation's flag is of all frames.
    let alpha = content.starts_with(b"ALPH") || content.starts_with(b"VP8L") && header[0] & ALPHA != 0;
    still.extend([if alpha { ALPHA } else { 0 }, 0, 0, 0]);
    still.extend_from_slice(&frame[6..12]);
    still.extend_from_slice(content);
    let size = u32::try_from(still.len() - 8).ok()?;
    still[4..8].copy_from_slice(&size.to_le_bytes());
    Some(WebPFrame { canvas, left, top, extent, still })
}

/// The file without flags for chunks that it lacks: the library looks for these chunks, Pillow does not. A lossless
/// picture has its alpha within.
pub(crate) fn without_unused_flags(encoded: &[u8]) -> Cow<'_, [u8]> {
    // The place of the flags in VP8X, if it is the first chunk.
    const FLAGS: usize = 20;
    let Some(flags) = encoded.get(FLAGS).filter(|_| encoded[12..16] == *b"VP8X") else { return encoded.into() };
    let mut unused = 0;
    for (flag, name) in [(ALPHA, *b"ALPH"), (0x20, *b"ICCP"), (8, *b"EXIF"), (4, *b"XMP ")] {
        // A lossless picture has its alpha within.
        let is_within = flag == ALPHA && riff_chunk(&encoded[12..], *b"VP8 ").is_none();
        if riff_chunk(&encoded[12..], name).is_none() && !is_within {
            unused |= flag;
        }
    }
    if flags & unused == 0 {
        return encoded.into();
    }
    let mut file = encoded.to_vec();
    file[FLAGS] &= !unused;
    file.into()
}

/// The payload of the first chunk called `name` in a run of RIFF chunks.
fn riff_chunk(mut chunks: &[u8], name: [u8; 4]) -> Option<&[u8]> {
    loop {
        let (&[n0, n1, n2, n3, l0, l1, l2, l3], rest) = chunks.split_first_chunk()?;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if [n0, n1, n2, n3] == name {
            return rest.get(..length);
        }
        // Chunks begin at even offsets.
        chunks = rest.get(length.checked_add(length % 2)?..)?;
    }
}

fn u24(bytes: &[u8], at: usize) -> Option<u32> {
    let &[a, b, c] = bytes.get(at..at + 3)?.first_chunk()?;
    Some(u32::from_le_bytes([a, b, c, 0]))
}

fn gif_fault(error: DecodingError) -> DecodeError {
    let format = ImageFormat::Gif;
    match error {
        DecodingError::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            DecodeError::truncated(format, "the file ends early")
        }
        DecodingError::UnexpectedEof => DecodeError::truncated(format, "the file ends early"),
        DecodingError::MemoryLimit | DecodingError::OutOfMemory => {
            DecodeError::TooCostly("GIF takes too much memory to decode".to_owned())
        }
        other => DecodeError::corrupt(format, other),
    }
}

#[cfg(test)]
mod tests {
    use foveate_decode::conformance::samples;
    use foveate_decode::{DecodeHint, Decoder, DecoderOptions};
    use gif::{Encoder, Frame};

    use super::*;

    const PALETTE: [u8; 9] = [10, 11, 12, 20, 21, 22, 30, 31, 32];

    /// A GIF with a 2 × 1 frame of the colours 1 and 2 at (`left`, 1).
    fn gif_file(screen: (u16, u16), left: u16, transparent: Option<u8>) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, screen.0, screen.1, &PALETTE).unwrap();
        let mut frame = Frame::from_indexed_pixels(2, 1, vec![1, 2], transparent);
        (frame.left, frame.top) = (left, 1);
        encoder.write_frame(&frame).unwrap();
        drop(encoder);
        file
    }

    fn pixels(file: &[u8]) -> (Size, Vec<u8>) {
        let mut out = PixelBuf::default();
        let size = gif(file, &DecoderOptions::default(), &mut vec![9; 100], &mut out).unwrap();
        (size, out.as_slice().chunks_exact(3).map(|pixel| pixel[0]).collect())
    }

    #[test]
    fn around_a_gif_frame_is_the_transparent_colour_or_the_first() {
        assert_eq!(pixels(&gif_file((3, 2), 1, None)), (Size::new(3, 2), vec![10, 10, 10, 10, 20, 30]));
        assert_eq!(pixels(&gif_file((3, 2), 1, Some(2))), (Size::new(3, 2), vec![30, 30, 30, 30, 20, 30]));
    }

    #[test]
    fn the_canvas_grows_with_a_gif_frame_beyond_it() {
        assert_eq!(pixels(&gif_file((1, 1), 1, None)), (Size::new(3, 2), vec![10, 10, 10, 10, 20, 30]));
    }

    #[test]
    fn a_gif_canvas_beyond_the_limit_is_refused() {
        let mut out = PixelBuf::new(foveate_core::PixelLimits { max_pixels: 5 });
        let file = gif_file((1, 1), 1, None);
        let outcome = gif(&file, &DecoderOptions::default(), &mut Vec::new(), &mut out);
        assert!(matches!(outcome, Err(DecodeError::Limit(_))));
    }

    /// An animation whose first frame is the lossless sample at (`left`, `top`), which are even.
    fn webp_file(canvas: Size, left: u32, top: u32) -> Vec<u8> {
        let u24 = |value: u32| value.to_le_bytes()[..3].to_vec();
        let chunk = |name: &[u8; 4], payload: &[u8]| {
            [name.as_slice(), &(payload.len() as u32).to_le_bytes(), payload, &vec![0; payload.len() % 2]].concat()
        };
        let header = [vec![0x12, 0, 0, 0], u24(canvas.width - 1), u24(canvas.height - 1)].concat();
        let size = samples::SIZE;
        let place =
            [u24(left / 2), u24(top / 2), u24(size.width - 1), u24(size.height - 1), u24(100), vec![0]].concat();
        let frame = [&place, &samples::WEBP[12..]].concat();
        let body =
            [b"WEBP".to_vec(), chunk(b"VP8X", &header), chunk(b"ANIM", &[0; 6]), chunk(b"ANMF", &frame)].concat();
        chunk(b"RIFF", &body)
    }

    fn webp_pixels(file: &[u8]) -> Result<PixelBuf, DecodeError> {
        let mut out = PixelBuf::default();
        crate::GenericDecoder::new(DecoderOptions::default()).decode(file, DecodeHint::default(), &mut out)?;
        Ok(out)
    }

    #[test]
    fn a_webp_frame_lies_in_its_place_on_black() {
        let canvas = Size::new(30, 20);
        let out = webp_pixels(&webp_file(canvas, 4, 2)).unwrap();
        assert_eq!(out.size(), canvas);
        let expected = samples::expected();
        for y in 0..canvas.height {
            for x in 0..canvas.width {
                let inside = (4..28).contains(&x) && (2..18).contains(&y);
                let at = if inside { ((y - 2) * 24 + x - 4) as usize * 3 } else { 0 };
                let wanted = if inside { &expected[at..at + 3] } else { &[0; 3] };
                assert_eq!(out.view().pixel(x, y), wanted, "at {x}, {y}");
            }
        }
    }

    #[test]
    fn a_webp_frame_outside_its_canvas_is_an_error() {
        assert!(webp_pixels(&webp_file(Size::new(24, 16), 0, 0)).is_ok());
        assert!(webp_pixels(&webp_file(Size::new(24, 16), 2, 0)).is_err());
    }
}
