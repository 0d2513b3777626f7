use foveate_core::PixelLimits;
use foveate_decode::DecodeHint;
use foveate_resize::Geometry;

/// How an image becomes the encoder's input.
#[derive(Clone, Debug, PartialEq)]
pub struct PreprocessOptions {
    /// Which part of the image is resampled to which size, and how.
    pub geometry: Geometry,
    /// Whether EXIF orientation is applied.
    pub orientation: OrientationPolicy,
    /// What the decoder may do to save time.
    pub hint: DecodeHint,
    /// Size limit for decoded images.
    pub limits: PixelLimits,
}

impl PreprocessOptions {
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
