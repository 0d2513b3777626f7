//! One strip or tile: from the file's bytes to samples.

use std::io::{ErrorKind, Read};

use flate2::read::ZlibDecoder;
use foveate_core::{PixelLimits, Size};
use foveate_decode::{DecodeError, DecoderOptions, ImageFormat};
use jpeg_decoder::ColorTransform;
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;
use weezl::decode::Configuration;
use weezl::{BitOrder, LzwStatus};

use super::error::{corrupt, unsupported};
use super::fax::{self, Coding};
use super::layout::TiffLayout;
use crate::{jpeg, memory};

pub(super) const RAW: u16 = 1;
const FAX_RUNS: u16 = 2;
const FAX_3: u16 = 3;
const FAX_4: u16 = 4;
const LZW: u16 = 5;
pub(super) const JPEG: u16 = 7;
const DEFLATE: u16 = 8;
const OLD_DEFLATE: u16 = 32946;
const PACK_BITS: u16 = 32773;
const LZMA: u16 = 34925;
const ZSTD: u16 = 50000;

/// A file's strips or tiles.
pub(super) struct TiffChunks<'a> {
    pub(super) encoded: &'a [u8],
    pub(super) layout: &'a TiffLayout,
    pub(super) options: &'a DecoderOptions,
    pub(super) limits: PixelLimits,
}

impl<'a> TiffChunks<'a> {
    /// Fills `samples` with chunk `number`; a strip that ends with the picture leaves the rest unspecified.
    pub(super) fn expand(&self, number: usize, samples: &mut [u8]) -> Result<(), DecodeError> {
        let layout = self.layout;
        let rows = layout.rows(number % layout.chunks_in_a_plane());
        let samples = &mut samples[..rows * layout.stored_row_bytes()];
        let packed = self.stored(number, samples.len());
        if layout.compression == JPEG {
            return self.abbreviated_jpeg(packed, rows, samples);
        }
        let reversed: Vec<u8>;
        let packed: &[u8] = if layout.reversed {
            reversed = packed.iter().map(|byte| byte.reverse_bits()).collect();
            &reversed
        } else {
            packed
        };
        let filled = match layout.compression {
            RAW => copy(packed, samples),
            LZW => lzw(packed, samples)?,
            DEFLATE | OLD_DEFLATE => read(ZlibDecoder::new(packed), samples)?,
            PACK_BITS => pack_bits(packed, samples),
            FAX_RUNS => fax::expand(packed, Coding::Runs, layout, samples)?,
            FAX_3 => fax::expand(packed, Coding::Group3, layout, samples)?,
            FAX_4 => fax::expand(packed, Coding::Group4, layout, samples)?,
            LZMA => read(XzReader::new_mem_limit(packed, false, memory::kibibytes(self.limits)), samples)?,
            ZSTD => read(StreamingDecoder::new(packed).map_err(|error| corrupt(&error.to_string()))?, samples)?,
            other => return Err(unsupported(format!("compression {other}"))),
        };
        self.complete(filled, samples)?;
        undo_predictor(layout, samples)
    }

    /// The chunk's bytes in the file. As in Pillow, the length tag does not count for uncompressed data.
    fn stored(&self, number: usize, needed: usize) -> &'a [u8] {
        let length = if self.layout.compression == RAW { needed as u64 } else { self.layout.lengths[number] };
        let start = usize::try_from(self.layout.offsets[number]).unwrap_or(usize::MAX).min(self.encoded.len());
        let rest = &self.encoded[start..];
        &rest[..usize::try_from(length).unwrap_or(usize::MAX).min(rest.len())]
    }

    /// Refuses a chunk of which bytes are missing, or makes the missing rows black, as Pillow does for uncompressed
    /// data.
    fn complete(&self, filled: usize, samples: &mut [u8]) -> Result<(), DecodeError> {
        if filled == samples.len() {
            return Ok(());
        }
        if self.layout.compression != RAW || !self.options.allow_truncated {
            return Err(DecodeError::truncated(ImageFormat::Tiff, "a strip or tile ends early"));
        }
        let row = self.layout.stored_row_bytes();
        samples[filled / row * row..].fill(if self.layout.photometric == 0 { 0xFF } else { 0 });
        Ok(())
    }

    /// A JPEG file whose tables are in a tag.
    fn abbreviated_jpeg(&self, packed: &[u8], rows: usize, samples: &mut [u8]) -> Result<(), DecodeError> {
        let layout = self.layout;
        let tables = layout.jpeg_tables.strip_suffix(&[0xFF, 0xD9]).unwrap_or(&layout.jpeg_tables);
        let file = match packed.strip_prefix(&[0xFF, 0xD8]) {
            Some(rest) if !tables.is_empty() => [tables, rest].concat(),
            _ => packed.to_vec(),
        };
        let structure = foveate_decode::jpeg::inspect(&file, self.options.max_scans)?;
        structure.admit(self.limits, self.options)?;
        let channels = layout.samples / layout.planes();
        let size = Size::new(layout.chunk.width, rows as u32);
        if structure.size != size || usize::from(structure.components) != channels {
            return Err(corrupt("a strip or tile contradicts its JPEG"));
        }
        let mut decoder = jpeg_decoder::Decoder::new(file.as_slice());
        decoder.set_max_decoding_buffer_size(samples.len());
        match (layout.photometric, channels) {
            (6, _) => decoder.set_color_transform(ColorTransform::YCbCr),
            (_, 3) => decoder.set_color_transform(ColorTransform::RGB),
            (_, 4) => decoder.set_color_transform(ColorTransform::CMYK),
            _ => {}
        }
        let mut decoded = decoder.decode().map_err(|error| jpeg::fault_of(ImageFormat::Tiff, error))?;
        if decoded.len() != samples.len() {
            return Err(corrupt("a strip or tile contradicts its JPEG"));
        }
        if channels == 4 {
            // The library takes every such file for Adobe's, which stores inverted inks.
            decoded.iter_mut().for_each(|ink| *ink = !*ink);
        }
        samples.copy_from_slice(&decoded);
        Ok(())
    }
}

fn copy(packed: &[u8], samples: &mut [u8]) -> usize {
    let length = packed.len().min(samples.len());
    samples[..length].copy_from_slice(&packed[..length]);
    length
}

/// Reads until the samples or the bytes end; returns how many samples are filled.
fn read(mut reader: impl Read, samples: &mut [u8]) -> Result<usize, DecodeError> {
    let mut filled = 0;
    while filled < samples.len() {
        match reader.read(&mut samples[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(corrupt(&error.to_string())),
        }
    }
    Ok(filled)
}

fn lzw(packed: &[u8], samples: &mut [u8]) -> Result<usize, DecodeError> {
    let mut decoder = Configuration::with_tiff_size_switch(BitOrder::Msb, 8).with_yield_on_full_buffer(true).build();
    let mut read = 0;
    let mut filled = 0;
    while filled < samples.len() {
        let step = decoder.decode_bytes(&packed[read..], &mut samples[filled..]);
        read += step.consumed_in;
        filled += step.consumed_out;
        match step.status {
            Ok(LzwStatus::Ok) if step.consumed_in + step.consumed_out > 0 => {}
            Ok(_) => break,
            Err(error) => return Err(corrupt(&error.to_string())),
        }
    }
    Ok(filled)
}

/// Runs of a repeated byte or of literal bytes, each behind its length.
fn pack_bits(mut packed: &[u8], samples: &mut [u8]) -> usize {
    let mut filled = 0;
    while filled < samples.len() {
        let [head, rest @ ..] = packed else { break };
        let room = &mut samples[filled..];
        let taken = match *head {
            0x80 => 0,
            head @ 0x81.. => {
                let Some(&byte) = rest.first() else { break };
                let length = (257 - usize::from(head)).min(room.len());
                room[..length].fill(byte);
                filled += length;
                1
            }
            head => {
                let length = (usize::from(head) + 1).min(room.len()).min(rest.len());
                room[..length].copy_from_slice(&rest[..length]);
                filled += length;
                length
            }
        };
        packed = &rest[taken..];
    }
    filled
}

fn undo_predictor(layout: &TiffLayout, samples: &mut [u8]) -> Result<(), DecodeError> {
    let step = layout.samples / layout.planes();
    let is_compressed = matches!(layout.compression, LZW | DEFLATE | OLD_DEFLATE | LZMA | ZSTD);
    match (layout.predictor, layout.bits) {
        _ if !is_compressed => {}
        (1, _) => {}
        (2, 8) => rows(layout, samples, |row| sum_bytes(row, step)),
        (2, 16) => rows(layout, samples, |row| sum_words(row, step, layout.big_endian)),
        (3, 32) => rows(layout, samples, |row| sum_floats(row, step, layout.big_endian)),
        (predictor, bits) => return Err(unsupported(format!("predictor {predictor} for {bits} bits"))),
    }
    Ok(())
}

fn rows(layout: &TiffLayout, samples: &mut [u8], undo: impl Fn(&mut [u8])) {
    samples.chunks_exact_mut(layout.stored_row_bytes()).for_each(undo);
}

fn sum_bytes(row: &mut [u8], step: usize) {
    for at in step..row.len() {
        row[at] = row[at].wrapping_add(row[at - step]);
    }
}

fn sum_words(row: &mut [u8], step: usize, big_endian: bool) {
    let (words, _) = row.as_chunks_mut::<2>();
    for at in step..words.len() {
        let before = words[at - step];
        let word = words[at];
        words[at] = if big_endian {
            u16::from_be_bytes(word).wrapping_add(u16::from_be_bytes(before)).to_be_bytes()
        } else {
            u16::from_le_bytes(word).wrapping_add(u16::from_le_bytes(before)).to_le_bytes()
        };
    }
}

/// The floating-point predictor: differences of bytes, where all highest bytes of a row come first.
fn sum_floats(row: &mut [u8], step: usize, big_endian: bool) {
    sum_bytes(row, step);
    let bytes = row.to_vec();
    let count = row.len() / 4;
    let (numbers, _) = row.as_chunks_mut::<4>();
    for (at, number) in numbers.iter_mut().enumerate() {
        *number = std::array::from_fn(|byte| bytes[byte * count + at]);
        if !big_endian {
            number.reverse();
        }
    }
}
