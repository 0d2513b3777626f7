//! TIFF with Pillow's pixels. The `tiff` crate reads the directory, the crates of the compressions expand strips and
//! tiles, and this module turns their samples into RGB.
//!
//! The `tiff` crate's own pixels are not used. Version 0.11 scrambles tiles with extra samples, refuses LZW tiles,
//! panics on tiles with a plane for each sample, and ignores fill order and associated alpha.

mod chunk;
mod error;
mod fax;
mod layout;
mod samples;

use std::borrow::Cow;
use std::io::Cursor;

use ::tiff::decoder::Decoder;
use foveate_core::{PixelBuf, Size};
use foveate_decode::{DecodeError, DecoderOptions, ImageFormat};

use chunk::TiffChunks;
use error::fault;
use layout::TiffLayout;
use samples::SampleKind;

/// Properties of a decoded picture.
pub(crate) struct TiffPicture {
    pub(crate) size: Size,
    pub(crate) is_clipped: bool,
}

/// Decodes the first picture, using `scratch` for the samples of one strip or tile.
pub(crate) fn decode(
    encoded: &[u8],
    options: &DecoderOptions,
    scratch: &mut Vec<u8>,
    out: &mut PixelBuf,
) -> Result<TiffPicture, DecodeError> {
    let limits = out.limits();
    let readable = with_usual_version(encoded);
    let encoded = &*readable;
    let mut directory = Decoder::new(Cursor::new(encoded)).map_err(fault)?;
    let layout = TiffLayout::read(&mut directory)?;
    limits.check(layout.size)?;
    let samples = SampleKind::read(&layout, &mut directory)?;
    let bytes = layout.chunk_bytes();
    crate::memory::admit(ImageFormat::Tiff, layout.size, bytes, out)?;
    scratch.clear();
    scratch.resize(bytes as usize, 0);
    let mut plane = vec![0; if layout.planes() > 1 { layout.plane_bytes() as usize } else { 0 }];
    let chunks = TiffChunks { encoded, layout: &layout, options, limits };
    let (pixels, _) = out.reset(layout.size)?.as_chunks_mut();
    for index in 0..layout.chunks_in_a_plane() {
        read_chunk(&chunks, index, &mut plane, scratch)?;
        lay(&layout, &samples, index, scratch, pixels);
    }
    Ok(TiffPicture { size: layout.size, is_clipped: matches!(samples, SampleKind::Clipped { .. }) })
}

/// The file with its version in the byte order of the rest. Pillow reads files without compression that have it in the
/// other one.
fn with_usual_version(encoded: &[u8]) -> Cow<'_, [u8]> {
    let version = match encoded.first_chunk() {
        Some(b"II\0*") => [b'*', 0],
        Some(b"MM*\0") => [0, b'*'],
        _ => return encoded.into(),
    };
    [&encoded[..2], &version, &encoded[4..]].concat().into()
}

/// Reads all planes of chunk `index` into `samples`, pixel by pixel.
fn read_chunk(chunks: &TiffChunks<'_>, index: usize, plane: &mut [u8], samples: &mut [u8]) -> Result<(), DecodeError> {
    let layout = chunks.layout;
    if layout.planes() == 1 {
        return chunks.expand(index, samples);
    }
    let wide = layout.bits / 8;
    for number in 0..layout.planes() {
        chunks.expand(number * layout.chunks_in_a_plane() + index, plane)?;
        for (pixel, sample) in samples.chunks_exact_mut(layout.samples * wide).zip(plane.chunks_exact(wide)) {
            pixel[number * wide..][..wide].copy_from_slice(sample);
        }
    }
    Ok(())
}

/// Puts a chunk's samples in their place, as RGB; what lies outside the picture is dropped.
fn lay(layout: &TiffLayout, samples: &SampleKind, index: usize, chunk: &[u8], pixels: &mut [[u8; 3]]) {
    let width = layout.size.width as usize;
    let height = layout.size.height as usize;
    let (left, top) = layout.place(index);
    let columns = (width - left).min(layout.chunk.width as usize);
    let rows = (height - top).min(layout.chunk.height as usize);
    for (y, line) in chunk.chunks_exact(layout.row_bytes()).take(rows).enumerate() {
        samples.to_rgb(line, &mut pixels[(top + y) * width + left..][..columns]);
    }
}
