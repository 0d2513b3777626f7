//! The choice of images that the device decodes.

use foveate_core::Size;
use foveate_decode::jpeg::{self, Process, Structure};
use foveate_decode::{DecoderOptions, ImageFormat, Orientation, orientation, sniff};
use foveate_preprocess::{OrientationPolicy, PreprocessOptions};

use crate::resample::ResampleRecipe;

/// An image that the device decodes.
pub(crate) struct Admitted {
    /// Its size as stored.
    pub(crate) stored: Size,
    pub(crate) turn: Orientation,
    pub(crate) recipe: ResampleRecipe,
}

impl Admitted {
    /// `None` unless the image is certainly whole and of a kind that nvJPEG decodes like libjpeg; the CPU's decoder
    /// then judges it. Decodes nothing and allocates no memory.
    pub(crate) fn of(bytes: &[u8], options: &PreprocessOptions) -> Option<Self> {
        if sniff(bytes).ok()? != ImageFormat::Jpeg {
            return None;
        }
        // The strict ones: images that need tolerance are decoded on the CPU.
        let strict = DecoderOptions::default();
        let structure = jpeg::inspect(bytes, strict.max_scans).ok()?;
        structure.admit(options.limits, &strict).ok()?;
        if !is_plain(&structure) || names_rgb(bytes) {
            return None;
        }
        let turn = match options.orientation {
            OrientationPolicy::Apply => orientation(bytes, ImageFormat::Jpeg),
            OrientationPolicy::Ignore => Orientation::Normal,
        };
        let recipe = ResampleRecipe::new(options.geometry, turn.apply_size(structure.size))?;
        Some(Self { stored: structure.size, turn, recipe })
    }

    /// Its upright size.
    pub(crate) fn size(&self) -> Size {
        self.turn.apply_size(self.stored)
    }
}

/// Baseline or progressive, gray or YCbCr, in one of the usual subsamplings.
fn is_plain(structure: &Structure) -> bool {
    let sampling = &structure.sampling[..usize::from(structure.components).min(4)];
    let is_usual = match sampling {
        [(1, 1)] => true,
        [luma, (1, 1), (1, 1)] => [(1, 1), (2, 1), (2, 2), (1, 2), (4, 1)].contains(luma),
        _ => false,
    };
    let process = match structure.process {
        Process::Baseline => structure.interleaved,
        Process::Progressive => true,
        _ => false,
    };
    let is_ycc = structure.components == 1 || matches!(structure.adobe_transform, None | Some(1));
    is_usual && process && is_ycc && !structure.needs_standard_tables
}

/// Returns true if the frame's components are called R, G and B, which libjpeg takes as the sign of a file without
/// YCbCr.
fn names_rgb(bytes: &[u8]) -> bool {
    let frames = [0xC0, 0xC2].into_iter().flat_map(|marker| jpeg::header_segments(bytes, marker));
    // Precision, size and number of components come first, then three bytes per component, its name first.
    frames.into_iter().any(|frame| [6, 9, 12].map(|at| frame.get(at).copied()) == [b'R', b'G', b'B'].map(Some))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Structure = Structure {
        size: Size::new(8, 8),
        process: Process::Baseline,
        precision: 8,
        components: 3,
        sampling: [(2, 2), (1, 1), (1, 1), (0, 0)],
        interleaved: true,
        adobe_transform: None,
        scans: 1,
        component_scans: 3,
        needs_standard_tables: false,
        ending: jpeg::Ending::Complete,
    };

    #[test]
    fn only_plain_files_are_for_the_device() {
        let gray = Structure { components: 1, sampling: [(1, 1), (0, 0), (0, 0), (0, 0)], ..PLAIN };
        let progressive = Structure { process: Process::Progressive, interleaved: false, ..PLAIN };
        for plain in [PLAIN, gray, progressive, Structure { adobe_transform: Some(1), ..PLAIN }] {
            assert!(is_plain(&plain), "{plain:?}");
        }
        for other in [
            Structure { process: Process::Extended, ..PLAIN },
            Structure { interleaved: false, ..PLAIN },
            Structure { adobe_transform: Some(0), ..PLAIN },
            Structure { components: 4, sampling: [(1, 1); 4], ..PLAIN },
            Structure { sampling: [(2, 2), (2, 1), (1, 1), (0, 0)], ..PLAIN },
            Structure { sampling: [(3, 1), (1, 1), (1, 1), (0, 0)], ..PLAIN },
            Structure { needs_standard_tables: true, ..PLAIN },
        ] {
            assert!(!is_plain(&other), "{other:?}");
        }
    }

    #[test]
    fn rgb_is_told_by_its_components_names() {
        let frame = |names: &[u8; 3]| {
            let parts = names.iter().flat_map(|&name| [name, 0x11, 0]);
            let payload: Vec<u8> = [8, 0, 8, 0, 8, 3].into_iter().chain(parts).collect();
            [&[0xFF, 0xD8, 0xFF, 0xC0, 0, 17], payload.as_slice()].concat()
        };
        assert!(names_rgb(&frame(b"RGB")) && !names_rgb(&frame(&[1, 2, 3])));
    }
}
