#![doc = include_str!("../README.md")]

mod backend;
#[cfg(feature = "conformance")]
pub mod conformance;
mod cpu;
mod error;

use std::time::Duration;

use foveate_core::{BatchMemory, PixelLimits, Size, Stage};
use foveate_decode::DecodeHint;
use foveate_resize::Geometry;

pub use backend::{OpenOptions, PreprocessorBackend, PreprocessorRegistry};
pub use cpu::{CpuPreprocessor, DecoderOpener, Opener, ResizerOpener};
pub use error::{ItemFault, PreprocessError};

/// Makes an encoder's input of encoded images. One per thread; it owns what it needs between calls.
pub trait Preprocessor: Send {
    /// Prepares `images`, at most as many as `out` has room for. Of those that succeed, the first lies at the start of
    /// `out` and each next one behind it, `[h, w, 3]` u8 RGB of the [`Geometry::output`] size, in the order of `images`.
    /// `prepared` is cleared and gets one entry for each image: its size upright and before resizing, or what was wrong
    /// with it. All is done when this returns, on a device too.
    ///
    /// # Errors
    /// Only what concerns every image: a library that is missing, a device that failed, memory that is on no place that
    /// this one can write to.
    fn preprocess(
        &mut self,
        images: &[&[u8]],
        out: &mut dyn BatchMemory,
        prepared: &mut Vec<Result<Size, ItemFault>>,
        clock: &dyn StageClock,
    ) -> Result<(), PreprocessError>;
}

/// How an image becomes the encoder's input.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Which part of the image is resampled to which size, and how.
    pub geometry: Geometry,
    /// Whether EXIF orientation is applied.
    pub orientation: OrientationPolicy,
    /// What the decoder may do to save time.
    pub hint: DecodeHint,
    /// Size limit for decoded images.
    pub limits: PixelLimits,
}

impl Options {
    /// Full-size decoding, upright, with the usual limits.
    pub fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            orientation: OrientationPolicy::Apply,
            hint: DecodeHint::default(),
            limits: PixelLimits::DEFAULT,
        }
    }
}

/// What to do with the orientation that a camera noted in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrientationPolicy {
    /// Turn the pixels upright, as image loaders do.
    #[default]
    Apply,
    /// Take the pixels as stored, as `transformers`' processors do when given raw pixels.
    Ignore,
}

/// Is told what the stages of preprocessing cost.
pub trait StageClock {
    /// Does `work` as one span of `stage`.
    fn time(&self, stage: Stage, work: &mut dyn FnMut());

    /// Notes what somebody else measured: a device, by its own clock.
    fn record(&self, stage: Stage, time: Duration);
}

/// Measures nothing.
pub struct Untimed;

impl StageClock for Untimed {
    fn time(&self, _: Stage, work: &mut dyn FnMut()) {
        work();
    }

    fn record(&self, _: Stage, _: Duration) {}
}
