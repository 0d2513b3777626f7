//! The frame: the image's components and the sizes derived from them.

use foveate_decode::jpeg::Structure;
use foveate_decode::{DecodeError, ImageFormat};

use crate::color::ColorSpace;
use crate::error::corrupt;
use crate::upsample::Upsampling;

/// Samples on each side of a block.
pub(crate) const BLOCK: usize = 8;
/// Most components of an image.
pub(crate) const MAX_COMPONENTS: usize = 4;

/// One component of the image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Component {
    pub(crate) id: u8,
    /// Its blocks in a unit (MCU) of an interleaved scan, across and down.
    pub(crate) h: usize,
    pub(crate) v: usize,
    pub(crate) quantization: usize,
    /// Size in samples.
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// Blocks in a row and in total, including those that only pad the last units.
    pub(crate) blocks_across: usize,
    pub(crate) blocks: usize,
    /// Index of its first block among the blocks of all components.
    pub(crate) first_block: usize,
    pub(crate) upsampling: Upsampling,
}

/// The frame header and the values derived from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) width: usize,
    pub(crate) height: usize,
    components: [Component; MAX_COMPONENTS],
    count: usize,
    /// The largest number of block rows in a unit.
    pub(crate) max_v: usize,
    /// Units of an interleaved scan, across and down.
    pub(crate) units_across: usize,
    pub(crate) units_down: usize,
    /// Blocks of all components.
    pub(crate) blocks: usize,
}

impl Frame {
    /// Parses the payload of a frame header that [`foveate_decode::jpeg::inspect`] has accepted.
    pub(crate) fn parse(payload: &[u8], structure: &Structure) -> Result<Self, DecodeError> {
        let (width, height) = (structure.size.width as usize, structure.size.height as usize);
        let specs = payload.get(6..).unwrap_or_default().as_chunks::<3>().0;
        if specs.is_empty() || specs.len() > MAX_COMPONENTS || specs.len() != usize::from(structure.components) {
            return Err(corrupt("bad frame header"));
        }
        // A single component is never interleaved, so its factors have no meaning.
        let factors = |sampling: u8| match specs.len() {
            1 => (1, 1),
            _ => (usize::from(sampling >> 4).clamp(1, 4), usize::from(sampling & 15).clamp(1, 4)),
        };
        let max_h = specs.iter().map(|spec| factors(spec[1]).0).max().unwrap_or(1);
        let max_v = specs.iter().map(|spec| factors(spec[1]).1).max().unwrap_or(1);
        let units_across = width.div_ceil(max_h * BLOCK);
        let units_down = height.div_ceil(max_v * BLOCK);
        let mut frame = Self {
            width,
            height,
            components: [Component::ABSENT; MAX_COMPONENTS],
            count: specs.len(),
            max_v,
            units_across,
            units_down,
            blocks: 0,
        };
        for (component, &[id, sampling, quantization]) in frame.components.iter_mut().zip(specs) {
            let (h, v) = factors(sampling);
            let own_width = (width * h).div_ceil(max_h);
            let upsampling = Upsampling::choose((h, v), (max_h, max_v), own_width).ok_or_else(|| {
                let ratio = format!("components of {h}x{v} samples where the largest has {max_h}x{max_v}");
                DecodeError::unsupported(ImageFormat::Jpeg, ratio)
            })?;
            *component = Component {
                id,
                h,
                v,
                quantization: usize::from(quantization),
                width: own_width,
                height: (height * v).div_ceil(max_v),
                blocks_across: units_across * h,
                blocks: units_across * h * units_down * v,
                first_block: frame.blocks,
                upsampling,
            };
            frame.blocks += component.blocks;
        }
        Ok(frame)
    }

    pub(crate) fn components(&self) -> &[Component] {
        &self.components[..self.count]
    }
}

impl Component {
    const ABSENT: Self = Self {
        id: 0,
        h: 1,
        v: 1,
        quantization: 0,
        width: 0,
        height: 0,
        blocks_across: 0,
        blocks: 0,
        first_block: 0,
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
        let ids = || components.iter().map(|component| component.id);
        match (components.len(), self.adobe_transform) {
            (1, _) => ColorSpace::Gray,
            (4, None | Some(0)) => ColorSpace::Cmyk,
            (4, Some(_)) => ColorSpace::Ycck,
            (_, Some(0)) if !self.jfif => ColorSpace::Rgb,
            (_, None) if !self.jfif && ids().eq(*b"RGB") => ColorSpace::Rgb,
            _ => ColorSpace::YCbCr,
        }
    }
}
