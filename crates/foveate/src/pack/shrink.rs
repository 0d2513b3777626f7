//! Photos at the size that a recipe needs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use foveate_core::{FaultScope, ImageViewMut, PixelBuf, PixelLimits, Size, Stage, error_chain, panic_message};
use foveate_decode::{DecodeError, DecodeHint, Decoder, Orientation, orientation};
use foveate_preprocess::{DecoderOpener, OrientationPolicy, PreprocessError, ResizerOpener};
use foveate_resize::{Filter, Geometry, ResizeError, Resizer};
use image::ExtendedColorType;
use image::codecs::jpeg::JpegEncoder;

/// Longest side of a JPEG.
const MOST_SIDE: u32 = u16::MAX as u32;

/// The size of packed photos.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resize {
    /// Pixels of the shorter side, by the filter of the job's recipe. Photos that are no larger are copied.
    pub edge: u32,
    /// Quality of the JPEGs, 1..=100. Their chroma has full resolution.
    pub quality: u8,
}

/// How photos are made smaller.
#[derive(Clone)]
pub(super) struct Shrink {
    pub(super) resize: Resize,
    pub(super) filter: Filter,
    pub(super) decoder: DecoderOpener,
    pub(super) resizer: ResizerOpener,
    pub(super) orientation: OrientationPolicy,
    pub(super) limits: PixelLimits,
}

/// Makes photos smaller, for one thread.
pub(super) struct Shrinker {
    settings: Shrink,
    decoder: Box<dyn Decoder>,
    resizer: Box<dyn Resizer>,
    pixels: PixelBuf,
    turned: PixelBuf,
    small: Vec<u8>,
}

/// Why a photo has not become smaller.
pub(super) enum Fault {
    Item(Stage, String),
    Run(PreprocessError),
}

impl Shrink {
    pub(super) fn open(&self) -> Result<Shrinker, PreprocessError> {
        Ok(Shrinker {
            settings: self.clone(),
            decoder: (self.decoder)()?,
            resizer: (self.resizer)()?,
            pixels: PixelBuf::new(self.limits),
            turned: PixelBuf::new(self.limits),
            small: Vec::new(),
        })
    }
}

impl Shrinker {
    /// A photo as JPEG, upright and resized; `None` if its shorter side is no longer than wanted, or its longer side
    /// would be longer than a JPEG's. A panic counts as this photo's fault.
    pub(super) fn shrink(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let done = catch_unwind(AssertUnwindSafe(|| self.try_shrink(bytes)));
        self.pixels.shrink();
        self.turned.shrink();
        done.unwrap_or_else(|panic| {
            *self = self.settings.open().map_err(Fault::Run)?;
            let reason = format!("decoder or resizer panicked: {}", panic_message(panic.as_ref()));
            Err(Fault::Item(Stage::Decode, reason))
        })
    }

    fn try_shrink(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let Shrink { resize: Resize { edge, quality }, filter, .. } = self.settings;
        let decoded = self.decoder.decode(bytes, DecodeHint::default(), &mut self.pixels).map_err(decode_fault)?;
        let stored = self.pixels.size();
        if stored.width.min(stored.height) <= edge {
            return Ok(None);
        }
        let turn = match self.settings.orientation {
            OrientationPolicy::Apply => orientation(bytes, decoded.format),
            OrientationPolicy::Ignore => Orientation::Normal,
        };
        let item = |error: String| Fault::Item(Stage::Decode, error);
        turn.apply(&mut self.pixels, &mut self.turned).map_err(|error| item(error_chain(&error)))?;
        let (upright, square) = (self.pixels.size(), Size::square(edge));
        let size = Geometry::ShortestEdgeCrop { edge, crop: square, filter }.plan(upright).scaled(upright);
        if size.width.max(size.height) > MOST_SIDE {
            return Ok(None);
        }
        let plan = Geometry::Stretch { output: size, filter }.plan(upright);
        self.small.resize(size.rgb_len().unwrap_or(0), 0);
        let out =
            ImageViewMut::new(&mut self.small, size).ok_or_else(|| item(format!("{size} are too many pixels")))?;
        self.resizer.resize(self.pixels.view(), &plan, out).map_err(resize_fault)?;
        let mut jpeg = Vec::new();
        let mut encoder = JpegEncoder::new_with_quality(&mut jpeg, quality);
        let encoded = encoder.encode(&self.small, size.width, size.height, ExtendedColorType::Rgb8);
        encoded.map_err(|error| Fault::Item(Stage::Resize, error_chain(&error)))?;
        Ok(Some(jpeg))
    }
}

fn decode_fault(error: DecodeError) -> Fault {
    match error.scope() {
        FaultScope::Item => Fault::Item(Stage::Decode, error_chain(&error)),
        FaultScope::Run => Fault::Run(error.into()),
    }
}

fn resize_fault(error: ResizeError) -> Fault {
    match error.scope() {
        FaultScope::Item => Fault::Item(Stage::Resize, error_chain(&error)),
        FaultScope::Run => Fault::Run(error.into()),
    }
}
