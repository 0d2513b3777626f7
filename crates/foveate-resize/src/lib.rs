#![doc = include_str!("../README.md")]

pub mod axis;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod filter;
mod geometry;
pub mod opencv_linear;
mod plan;

use foveate_core::{Health, ImageView, ImageViewMut, Registry, named_backend};

pub use error::ResizeError;
pub use filter::Filter;
pub use geometry::Geometry;
pub use plan::{Placement, ResizePlan, SourceBox, TwoSteps};

/// Resamples images. One instance per thread; owns its scratch and keeps it from image to image.
pub trait Resizer: Send {
    /// Resamples `plan.source` of `src` into `plan.placement` of `dst`, whose size must be `plan.output`, and makes
    /// the rest of `dst` black. RGB8 in and out, `[height, width, 3]`, 0..=255, in the images' own (gamma) encoding,
    /// as Pillow and OpenCV do.
    ///
    /// Every sample of `dst` is written when it succeeds; after an error its content is unspecified. The result is a
    /// function of the arguments alone, whatever was resized before. A plan that does not fit the images
    /// ([`ResizePlan::check`]) is refused with [`ResizeError::Plan`].
    fn resize(&mut self, src: ImageView<'_>, plan: &ResizePlan, dst: ImageViewMut<'_>) -> Result<(), ResizeError>;

    /// How near its samples are to the originals'; selects the tolerances of its tests.
    fn capability(&self) -> Capability;
}

/// How near a resizer's samples are to those of the libraries that its filters are named after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Those of Pillow's filters that it has give Pillow's samples: within one step on 99.9 % of them and never more
    /// than two off.
    pub pillow_exact: bool,
    /// Those of Pillow's filters that it has use Pillow's kernels, in whatever arithmetic. Otherwise they are the
    /// library's nearest kernels for the same purpose; the backend's page says which.
    pub pillow_kernels: bool,
    /// Those of OpenCV's filters that it has give OpenCV's samples, every one equal; within one step with
    /// [`Filter::OpenCvCubic`], by which OpenCV's own builds differ.
    pub opencv_exact: bool,
}

type Open = dyn Fn() -> Result<Box<dyn Resizer>, ResizeError> + Send + Sync;

/// A named way to make resizers.
pub struct ResizerBackend {
    name: &'static str,
    about: &'static str,
    open: Box<Open>,
    health: fn() -> Health,
}

impl ResizerBackend {
    /// A backend called `name`; `open` makes one resizer, for one thread.
    pub fn new<F>(name: &'static str, about: &'static str, open: F) -> Self
    where
        F: Fn() -> Result<Box<dyn Resizer>, ResizeError> + Send + Sync + 'static,
    {
        Self { name, about, open: Box::new(open), health: Health::all_rust }
    }

    /// The same, answering [`foveate_core::Backend::health`] with `health`; without it, it counts as all Rust.
    #[must_use]
    pub fn with_health(self, health: fn() -> Health) -> Self {
        Self { health, ..self }
    }

    /// Makes a resizer for one thread.
    pub fn open(&self) -> Result<Box<dyn Resizer>, ResizeError> {
        (self.open)()
    }
}

named_backend!(ResizerBackend);

/// The resizers compiled into a program.
pub type ResizerRegistry = Registry<ResizerBackend>;
