//! Photos at the size that a recipe needs.

use foveate_core::{
    FaultScope, ImageViewMut, PixelBudget, PixelBuf, PixelLimits, Size, Stage, catch_panic, error_chain,
};
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

/// The settings of smaller photos.
#[derive(Clone)]
pub(crate) struct Shrink {
    pub(crate) resize: Resize,
    pub(crate) filter: Filter,
    pub(crate) decoder: DecoderOpener,
    pub(crate) resizer: ResizerOpener,
    pub(crate) orientation: OrientationPolicy,
    pub(crate) limits: PixelLimits,
    pub(crate) budget: PixelBudget,
}

/// Makes photos smaller, for one thread.
pub(crate) struct Shrinker {
    settings: Shrink,
    decoder: Box<dyn Decoder>,
    resizer: Box<dyn Resizer>,
    pixels: PixelBuf,
    turned: PixelBuf,
    small: Vec<u8>,
}

/// A page's figures of a photo.
#[cfg(feature = "search")]
pub(crate) struct PhotoLook {
    /// The hash of its upright pixels, unless they were clipped.
    pub(crate) pixels: Option<u64>,
    pub(crate) size: Size,
    /// A small JPEG, which browsers show whatever the photo's format is; empty if it is not wanted.
    pub(crate) small: Vec<u8>,
}

/// The reason that a photo has not become smaller.
pub(crate) enum Fault {
    Item(Stage, String),
    Run(PreprocessError),
}

impl Shrink {
    pub(crate) fn open(&self) -> Result<Shrinker, PreprocessError> {
        let pixels = PixelBuf::new(self.limits).with_budget(self.budget.clone());
        Ok(Shrinker {
            settings: self.clone(),
            decoder: (self.decoder)()?,
            resizer: (self.resizer)()?,
            turned: pixels.second(),
            pixels,
            small: Vec::new(),
        })
    }
}

impl Shrinker {
    /// A photo as JPEG, upright and resized; `None` if its shorter side is no longer than wanted, or its longer side
    /// would be longer than a JPEG's. A panic counts as this photo's fault.
    pub(crate) fn shrink(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        self.guarded(|shrinker| {
            shrinker.load(bytes)?;
            shrinker.try_shrink()
        })
    }

    #[cfg(feature = "search")]
    pub(crate) fn look(&mut self, bytes: &[u8], wants_small: bool) -> Result<PhotoLook, Fault> {
        self.guarded(|shrinker| {
            let is_clipped = shrinker.load(bytes)?;
            let size = shrinker.pixels.size();
            let Size { width, height } = size;
            let seed = u64::from(width) << 32 | u64::from(height);
            let hash = xxhash_rust::xxh3::xxh3_64_with_seed(shrinker.pixels.as_slice(), seed);
            let edge = f64::from(shrinker.settings.resize.edge);
            // Of a panorama, the longer side decides, so that a page does not grow with it.
            let least =
                f64::min(edge / f64::from(width.min(height)), 4.0 * edge / f64::from(width.max(height))).min(1.0);
            let [width, height] = [width, height].map(|side| (f64::from(side) * least).round().max(1.0) as u32);
            let small = if wants_small { shrinker.encode(Size::new(width, height))? } else { Vec::new() };
            Ok(PhotoLook { pixels: (!is_clipped).then_some(hash), size, small })
        })
    }

    fn guarded<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        let done = catch_panic(|| work(self));
        self.turned.shrink();
        self.pixels.shrink();
        done.unwrap_or_else(|message| {
            *self = self.settings.open().map_err(Fault::Run)?;
            let reason = format!("decoder or resizer panicked: {message}");
            Err(Fault::Item(Stage::Decode, reason))
        })
    }

    /// Decodes a photo, upright. Returns true if its gray was clipped.
    fn load(&mut self, bytes: &[u8]) -> Result<bool, Fault> {
        let decoded = self.decoder.decode(bytes, DecodeHint::default(), &mut self.pixels).map_err(decode_fault)?;
        let turn = match self.settings.orientation {
            OrientationPolicy::Apply => orientation(bytes, decoded.format),
            OrientationPolicy::Ignore => Orientation::Normal,
        };
        let applied = turn.apply(&mut self.pixels, &mut self.turned);
        applied.map_err(|error| Fault::Item(Stage::Decode, error_chain(&error)))?;
        Ok(decoded.is_clipped)
    }

    fn try_shrink(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        let Shrink { resize: Resize { edge, .. }, filter, .. } = self.settings;
        let upright = self.pixels.size();
        let square = Size::square(edge);
        if upright.width.min(upright.height) <= edge {
            return Ok(None);
        }
        let size = Geometry::ShortestEdgeCrop {
            edge,
            longest: None,
            crop: square,
            filter,
            ties: foveate_resize::CropTies::Down,
        }
        .plan(upright)
        .scaled(upright);
        if size.width.max(size.height) > MOST_SIDE {
            return Ok(None);
        }
        self.encode(size).map(Some)
    }

    /// The photo as a JPEG of this size.
    fn encode(&mut self, size: Size) -> Result<Vec<u8>, Fault> {
        let Shrink { resize: Resize { quality, .. }, filter, .. } = self.settings;
        let plan = Geometry::Stretch { output: size, filter }.plan(self.pixels.size());
        self.small.resize(size.rgb_len().unwrap_or(0), 0);
        let Some(out) = ImageViewMut::new(&mut self.small, size) else {
            return Err(Fault::Item(Stage::Decode, format!("{size} are too many pixels")));
        };
        self.resizer.resize(self.pixels.view(), &plan, out).map_err(resize_fault)?;
        let mut jpeg = Vec::new();
        let mut encoder = JpegEncoder::new_with_quality(&mut jpeg, quality);
        let encoded = encoder.encode(&self.small, size.width, size.height, ExtendedColorType::Rgb8);
        encoded.map_err(|error| Fault::Item(Stage::Resize, error_chain(&error)))?;
        Ok(jpeg)
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
