use foveate_core::{PixelBudget, PixelLimits};
use foveate_decode::DecodeHint;
use foveate_resize::Geometry;

/// The way in which an image becomes the encoder's input.
#[derive(Clone, Debug)]
pub struct PreprocessOptions {
    /// The part of the image to resample, its target size and the filter.
    pub geometry: Geometry,
    /// The treatment of EXIF orientation.
    pub orientation: OrientationPolicy,
    /// Permissions for the decoder that save time.
    pub hint: DecodeHint,
    /// Size limit for decoded images.
    pub limits: PixelLimits,
    /// Memory of large images, for all threads whose options are clones of these.
    pub budget: PixelBudget,
}

impl PreprocessOptions {
    /// Full-size decoding, upright, with the default limits.
    pub fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            orientation: OrientationPolicy::Apply,
            hint: DecodeHint::default(),
            limits: PixelLimits::DEFAULT,
            budget: PixelBudget::default(),
        }
    }
}

/// The treatment of the orientation stored by the camera.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrientationPolicy {
    /// Turns the pixels upright, as image loaders do.
    #[default]
    Apply,
    /// Keeps the pixels as stored, as `transformers`' processors do for raw pixels.
    Ignore,
}

impl OrientationPolicy {
    /// Both, the usual one first.
    pub const ALL: [Self; 2] = [Self::Apply, Self::Ignore];

    /// The name on the command line and in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Ignore => "ignore",
        }
    }
}
