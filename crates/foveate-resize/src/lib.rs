//! Resampling: the [`Resizer`] trait and the geometry of preprocessing recipes, as pure functions.

use foveate_core::{Backend, FaultScope, ImageView, ImageViewMut, Registry, Size};

/// Resamples images. One instance per thread; owns its scratch.
pub trait Resizer: Send {
    /// Resamples `plan.source` of `src` into all of `dst`, whose size must be `plan.output`.
    fn resize(&mut self, src: ImageView<'_>, plan: &ResizePlan, dst: ImageViewMut<'_>) -> Result<(), ResizeError>;
}

/// One resample: a fractional box of the source, the size it becomes, and the filter. Resize followed by a crop is
/// one such box, so no pixel that the crop drops is ever computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResizePlan {
    /// The part of the source that becomes the output, in source pixels.
    pub source: SourceBox,
    /// Size of the output.
    pub output: Size,
    /// The interpolation.
    pub filter: Filter,
}

/// A rectangle in source pixels, edges not on whole pixels in general. The filter's support may reach outside of
/// the box into the rest of the image (as in a resize of the whole image that is cropped afterwards).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceBox {
    /// Left edge.
    pub x: f64,
    /// Top edge.
    pub y: f64,
    /// Width, positive.
    pub width: f64,
    /// Height, positive.
    pub height: f64,
}

/// The interpolation kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Filter {
    /// Pillow's BILINEAR: triangle, widened when shrinking (antialiased).
    Bilinear,
    /// Pillow's BICUBIC: a = -0.5, widened when shrinking (antialiased).
    Bicubic,
    /// Pillow's LANCZOS: a = 3, widened when shrinking (antialiased).
    Lanczos3,
    /// Pillow's BOX, widened when shrinking.
    Box,
    /// OpenCV's `INTER_LINEAR`: two by two neighbours whatever the scale, 11-bit fixed-point weights, no antialiasing.
    OpenCvLinear,
}

/// A resample that cannot be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// The plan does not fit the image or the output.
    #[error("resize plan does not fit: {0}")]
    Plan(String),
    /// The backend cannot do this filter.
    #[error("resizer '{resizer}' has no filter {filter:?}")]
    Unsupported {
        /// The backend.
        resizer: &'static str,
        /// The filter asked for.
        filter: Filter,
    },
    /// The backend's library failed.
    #[error("resize failed: {0}")]
    Backend(String),
    /// The backend's library is missing.
    #[error("resizer unavailable: {0}")]
    Unavailable(String),
}

impl ResizeError {
    /// A missing library or filter stops the run, the rest loses one item.
    pub fn scope(&self) -> FaultScope {
        match self {
            Self::Unavailable(_) | Self::Unsupported { .. } => FaultScope::Run,
            _ => FaultScope::Item,
        }
    }
}

type Open = dyn Fn() -> Result<Box<dyn Resizer>, ResizeError> + Send + Sync;

/// A named way to make resizers.
pub struct ResizerBackend {
    name: &'static str,
    about: &'static str,
    open: Box<Open>,
}

impl ResizerBackend {
    /// A backend called `name`; `open` makes one resizer, for one thread.
    pub fn new<F>(name: &'static str, about: &'static str, open: F) -> Self
    where
        F: Fn() -> Result<Box<dyn Resizer>, ResizeError> + Send + Sync + 'static,
    {
        Self { name, about, open: Box::new(open) }
    }

    /// Makes a resizer for one thread.
    pub fn open(&self) -> Result<Box<dyn Resizer>, ResizeError> {
        (self.open)()
    }
}

impl Backend for ResizerBackend {
    fn name(&self) -> &str {
        self.name
    }
    fn about(&self) -> &str {
        self.about
    }
}

impl std::fmt::Debug for ResizerBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResizerBackend").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The resizers compiled into a program.
pub type ResizerRegistry = Registry<ResizerBackend>;

/// How an image of any size becomes the encoder's input.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Geometry {
    /// Resize so that the shorter side is `edge` (the longer one truncated), then crop the centre: the `hf` recipe.
    ShortestEdgeCrop {
        /// Length of the shorter side after resizing.
        edge: u32,
        /// Size cut from the centre.
        crop: Size,
        /// The interpolation.
        filter: Filter,
    },
    /// Stretch the whole image to `output`, ignoring its aspect: the `squash` recipe.
    Stretch {
        /// Size of the output.
        output: Size,
        /// The interpolation.
        filter: Filter,
    },
}
