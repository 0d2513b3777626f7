//! The frame: the image's components and the sizes derived from them.

use std::ops::Range;

use foveate_decode::jpeg::Structure;
use foveate_decode::{DecodeError, ImageFormat};

use crate::color::ColorSpace;
use crate::error::corrupt;
use crate::reduced::Reduction;
use crate::scale::EighthsScale;
use crate::upsample::Upsampling;

/// Samples on each side of a block.
pub(crate) const BLOCK: usize = 8;
/// Most components of an image.
pub(crate) const MAX_COMPONENTS: usize = 4;

/// Components that keep this many coefficients or more do not skip the others; measured.
const LEAST_SKIP: usize = 12;

/// Columns on each side of the wanted ones that are decoded too, so that every wanted one has neighbours to be
/// interpolated from, wherever the image has them.
const MARGIN: usize = 4;

/// One component of the image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Component {
    pub(crate) id: u8,
    /// Its blocks in a unit (MCU) of an interleaved scan, across and down.
    pub(crate) h: usize,
    pub(crate) v: usize,
    pub(crate) quantization: usize,
    /// Samples on each side of a decoded block.
    pub(crate) side: usize,
    /// The transform to this side; none for the native 8.
    pub(crate) reduction: Option<&'static Reduction>,
    /// The last coefficient, in coding order, that the transform reads.
    pub(crate) kept: usize,
    /// Size in decoded samples.
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// Blocks across and down that a scan of this component alone holds.
    pub(crate) own_blocks: (usize, usize),
    /// Blocks in a row, including those that only pad the last units.
    pub(crate) blocks_across: usize,
    /// Index of its first block row among those of a unit row.
    pub(crate) first_row: usize,
    pub(crate) upsampling: Upsampling,
}

/// The frame header and the values derived from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// Size of the decoded picture.
    pub(crate) width: usize,
    pub(crate) height: usize,
    components: [Component; MAX_COMPONENTS],
    count: usize,
    /// The largest number of block rows in a unit.
    pub(crate) max_v: usize,
    /// Rows of the decoded picture in a row of units.
    pub(crate) unit_rows: usize,
    /// Columns of the decoded picture in a column of units.
    unit_columns: usize,
    /// Units of an interleaved scan, across and down.
    pub(crate) units_across: usize,
    pub(crate) units_down: usize,
    /// Block rows of all components in a unit row.
    pub(crate) block_rows: usize,
}

impl Frame {
    /// Parses the payload of a frame header that [`foveate_decode::jpeg::inspect`] has accepted.
    pub(crate) fn parse(payload: &[u8], structure: &Structure, scale: EighthsScale) -> Result<Self, DecodeError> {
        let width = structure.size.width as usize;
        let height = structure.size.height as usize;
        let decoded = scale.of(structure.size);
        let specs = payload.get(6..).unwrap_or_default().as_chunks::<3>().0;
        if specs.is_empty() || specs.len() > MAX_COMPONENTS || specs.len() != usize::from(structure.components) {
            return Err(corrupt("bad frame header"));
        }
        let mut factors = [(1, 1); MAX_COMPONENTS];
        // A single component is never interleaved, so its factors have no meaning.
        if specs.len() > 1 {
            for (factors, [_, sampling, _]) in factors.iter_mut().zip(specs) {
                *factors = (usize::from(sampling >> 4).clamp(1, 4), usize::from(sampling & 15).clamp(1, 4));
            }
        }
        let max_h = factors.iter().map(|factors| factors.0).max().unwrap_or(1);
        let max_v = factors.iter().map(|factors| factors.1).max().unwrap_or(1);
        let units_across = width.div_ceil(max_h * BLOCK);
        let units_down = height.div_ceil(max_v * BLOCK);
        let mut frame = Self {
            width: decoded.width as usize,
            height: decoded.height as usize,
            components: [Component::ABSENT; MAX_COMPONENTS],
            count: specs.len(),
            max_v,
            unit_rows: max_v * scale.eighths,
            unit_columns: max_h * scale.eighths,
            units_across,
            units_down,
            block_rows: 0,
        };
        for (i, (component, &[id, _, quantization])) in frame.components.iter_mut().zip(specs).enumerate() {
            let (h, v) = factors[i];
            let side = scale.block_side((h, v), (max_h, max_v));
            let own_width = (width * h * side).div_ceil(max_h * BLOCK);
            let ratio = ((h * side, v * side), (max_h * scale.eighths, max_v * scale.eighths));
            let upsampling = Upsampling::choose(ratio.0, ratio.1, own_width, scale.eighths > 1).ok_or_else(|| {
                let ratio = format!("components of {h}x{v} samples where the largest has {max_h}x{max_v}");
                DecodeError::unsupported(ImageFormat::Jpeg, ratio)
            })?;
            let reduction = (side < BLOCK).then(|| Reduction::of(scale, side));
            *component = Component {
                id,
                h,
                v,
                quantization: usize::from(quantization),
                side,
                reduction,
                kept: reduction.map_or(63, Reduction::last_coefficient),
                width: own_width,
                height: (height * v * side).div_ceil(max_v * BLOCK),
                own_blocks: ((width * h).div_ceil(max_h * BLOCK), (height * v).div_ceil(max_v * BLOCK)),
                blocks_across: units_across * h,
                first_row: frame.block_rows,
                upsampling,
            };
            frame.block_rows += v;
        }
        Ok(frame)
    }

    pub(crate) fn components(&self) -> &[Component] {
        &self.components[..self.count]
    }

    /// The units across that the `wanted` columns need.
    pub(crate) fn units(&self, wanted: Range<usize>) -> Range<usize> {
        let first = wanted.start.saturating_sub(MARGIN) / self.unit_columns;
        first..(wanted.end + MARGIN).div_ceil(self.unit_columns).min(self.units_across)
    }

    /// The columns of the decoded picture that these units hold.
    pub(crate) fn columns(&self, units: &Range<usize>) -> Range<usize> {
        units.start * self.unit_columns..self.width.min(units.end * self.unit_columns)
    }
}

impl Component {
    /// The last coefficient, in coding order, that is worth decoding in a sequential scan. To decode the others is
    /// cheaper than to change over to skipping them, unless they are most of the block.
    pub(crate) fn decoded(&self) -> usize {
        if self.kept < LEAST_SKIP { self.kept } else { 63 }
    }

    /// The block columns that these units hold.
    pub(crate) fn block_columns(&self, units: &Range<usize>) -> Range<usize> {
        units.start * self.h..units.end * self.h
    }

    const ABSENT: Self = Self {
        id: 0,
        h: 1,
        v: 1,
        quantization: 0,
        side: BLOCK,
        reduction: None,
        kept: 63,
        width: 0,
        height: 0,
        own_blocks: (0, 0),
        blocks_across: 0,
        first_row: 0,
        upsampling: Upsampling::None,
    };
}

/// Colour information found before the first scan.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ColorHints {
    pub(crate) jfif: bool,
    pub(crate) adobe_transform: Option<u8>,
}

impl ColorHints {
    /// libjpeg's guess at the colour space.
    pub(crate) fn color_space(self, components: &[Component]) -> ColorSpace {
        match (components.len(), self.adobe_transform) {
            (1, _) => ColorSpace::Gray,
            (4, None | Some(0)) => ColorSpace::Cmyk,
            (4, Some(_)) => ColorSpace::Ycck,
            (_, Some(0)) if !self.jfif => ColorSpace::Rgb,
            (_, None) if !self.jfif && components.iter().map(|component| component.id).eq(*b"RGB") => ColorSpace::Rgb,
            _ => ColorSpace::YCbCr,
        }
    }
}
