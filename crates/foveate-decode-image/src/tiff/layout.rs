//! A picture's tags, checked.

use std::io::Cursor;

use ::tiff::decoder::ifd::Value;
use ::tiff::decoder::{ChunkType, Decoder};
use ::tiff::tags::{ByteOrder, Tag};
use foveate_core::Size;
use foveate_decode::DecodeError;

use super::error::{corrupt, fault, unsupported};

const T4_OPTIONS: Tag = Tag::Unknown(292);

/// The storage of the samples.
pub(super) struct TiffLayout {
    pub(super) size: Size,
    /// PhotometricInterpretation: what the samples mean.
    pub(super) photometric: u16,
    pub(super) bits: usize,
    /// Samples per pixel, extra ones included.
    pub(super) samples: usize,
    /// The meaning of the samples behind the colours: 0 unspecified, 1 associated alpha, 2 unassociated alpha.
    pub(super) extra: Vec<u16>,
    /// SampleFormat: 1 unsigned, 2 signed, 3 float.
    pub(super) format: u16,
    pub(super) big_endian: bool,
    pub(super) compression: u16,
    pub(super) predictor: u16,
    pub(super) jpeg_tables: Vec<u8>,
    /// True if rows of Group 3 may refer to the row above.
    pub(super) fax_in_two_dimensions: bool,
    /// True if the lowest bit of a byte comes first.
    pub(super) reversed: bool,
    /// Size of a strip or tile; the last strip may have fewer rows.
    pub(super) chunk: Size,
    pub(super) is_tiled: bool,
    /// True if each sample has separate chunks.
    pub(super) is_planar: bool,
    pub(super) offsets: Vec<u64>,
    pub(super) lengths: Vec<u64>,
}

impl TiffLayout {
    pub(super) fn read(directory: &mut Decoder<Cursor<&[u8]>>) -> Result<Self, DecodeError> {
        let (width, height) = directory.dimensions().map_err(fault)?;
        let size = Size::new(width, height);
        let is_tiled = directory.get_chunk_type() == ChunkType::Tile;
        let (starts, lengths) =
            if is_tiled { (Tag::TileOffsets, Tag::TileByteCounts) } else { (Tag::StripOffsets, Tag::StripByteCounts) };
        let chunk = if is_tiled {
            Size::new(required(directory, Tag::TileWidth)?, required(directory, Tag::TileLength)?)
        } else {
            Size::new(width, number(directory, Tag::RowsPerStrip, height)?.min(height))
        };
        let layout = Self {
            size,
            photometric: required(directory, Tag::PhotometricInterpretation)?,
            bits: usize::from(list::<u16>(directory, Tag::BitsPerSample)?.first().copied().unwrap_or(1)),
            samples: usize::from(number::<u16>(directory, Tag::SamplesPerPixel, 1)?),
            extra: list(directory, Tag::ExtraSamples)?,
            format: list(directory, Tag::SampleFormat)?.first().copied().unwrap_or(1),
            big_endian: directory.byte_order() == ByteOrder::BigEndian,
            compression: number(directory, Tag::Compression, 1)?,
            predictor: number(directory, Tag::Predictor, 1)?,
            jpeg_tables: directory
                .find_tag(Tag::JPEGTables)
                .map_err(fault)?
                .map_or(Ok(Vec::new()), Value::into_u8_vec)
                .map_err(fault)?,
            fax_in_two_dimensions: number::<u32>(directory, T4_OPTIONS, 0)? & 1 != 0,
            reversed: number::<u16>(directory, Tag::FillOrder, 1)? == 2,
            chunk,
            is_tiled,
            is_planar: number::<u16>(directory, Tag::PlanarConfiguration, 1)? == 2,
            offsets: list(directory, starts)?,
            lengths: list(directory, lengths)?,
        };
        layout.check()?;
        Ok(layout)
    }

    /// The library has compared the number of chunks with the sizes.
    fn check(&self) -> Result<(), DecodeError> {
        if self.chunk.is_empty() || self.samples == 0 || self.offsets.len() != self.chunks_in_a_plane() * self.planes()
        {
            return Err(corrupt("the number of strips or tiles contradicts the size"));
        }
        if self.offsets.len() != self.lengths.len() {
            return Err(corrupt("strips or tiles without a length"));
        }
        if self.planes() > 1 && !self.bits.is_multiple_of(8) {
            return Err(unsupported(format!("planes of {} bits per sample", self.bits)));
        }
        Ok(())
    }

    pub(super) fn planes(&self) -> usize {
        if self.is_planar { self.samples } else { 1 }
    }

    fn across(&self) -> usize {
        self.size.width.div_ceil(self.chunk.width) as usize
    }

    pub(super) fn chunks_in_a_plane(&self) -> usize {
        self.across() * self.size.height.div_ceil(self.chunk.height) as usize
    }

    /// Left column and top row of chunk `index` of a plane.
    pub(super) fn place(&self, index: usize) -> (usize, usize) {
        let across = index % self.across();
        let down = index / self.across();
        (across * self.chunk.width as usize, down * self.chunk.height as usize)
    }

    /// Rows of chunk `index` of a plane: the last strip ends with the picture, the last tile does not.
    pub(super) fn rows(&self, index: usize) -> usize {
        let (_, top) = self.place(index);
        let rows = self.chunk.height as usize;
        if self.is_tiled { rows } else { rows.min(self.size.height as usize - top) }
    }

    /// Bytes of a chunk's row with all samples.
    pub(super) fn row_bytes(&self) -> usize {
        (self.chunk.width as usize * self.samples * self.bits).div_ceil(8)
    }

    /// Bytes of a chunk's row in the file.
    pub(super) fn stored_row_bytes(&self) -> usize {
        self.row_bytes() / self.planes()
    }

    /// Bytes of a chunk with all samples.
    pub(super) fn chunk_bytes(&self) -> u64 {
        (self.row_bytes() as u64).saturating_mul(self.chunk.height.into())
    }

    /// Bytes of a chunk of one plane.
    pub(super) fn plane_bytes(&self) -> u64 {
        self.chunk_bytes() / self.planes() as u64
    }
}

type Directory<'a> = Decoder<Cursor<&'a [u8]>>;

fn number<T: TryFrom<u64>>(directory: &mut Directory<'_>, tag: Tag, default: T) -> Result<T, DecodeError> {
    Ok(directory.find_tag_unsigned(tag).map_err(fault)?.unwrap_or(default))
}

fn required<T: TryFrom<u64>>(directory: &mut Directory<'_>, tag: Tag) -> Result<T, DecodeError> {
    directory.get_tag_unsigned(tag).map_err(fault)
}

pub(super) fn list<T: TryFrom<u64>>(directory: &mut Directory<'_>, tag: Tag) -> Result<Vec<T>, DecodeError> {
    Ok(directory.find_tag_unsigned_vec(tag).map_err(fault)?.unwrap_or_default())
}
