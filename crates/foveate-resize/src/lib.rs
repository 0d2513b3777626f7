#![doc = include_str!("../README.md")]

pub mod axis;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod filter;
mod geometry;
pub mod opencv_linear;
mod plan;

use foveate_core::{Health, ImageView, ImageViewMut, Region, Registry, SampleType, Size, named_backend};

pub use error::ResizeError;
pub use filter::Filter;
pub use geometry::{CropTies, Geometry};
pub use plan::{Placement, ResizePlan, SourceBox, TwoSteps};

/// Resamples images. Each thread has its own instance, which reuses its scratch memory from image to image.
pub trait Resizer: Send {
    /// Resamples `plan.source` of `src` into `plan.placement` of `dst` and makes the rest of `dst` black. The size of
    /// `dst` must be `plan.output`. RGB8 in and out, `[height, width, 3]`, 0..=255, in the images' own (gamma)
    /// encoding, as in Pillow and OpenCV.
    ///
    /// On success every sample of `dst` is written; after an error its content is unspecified. The result depends on
    /// the arguments alone, not on earlier calls. A plan that does not fit the images ([`ResizePlan::check`]) is
    /// refused with [`ResizeError::Plan`].
    fn resize(&mut self, src: ImageView<'_>, plan: &ResizePlan, dst: ImageViewMut<'_>) -> Result<(), ResizeError>;

    /// The same for a filter that makes samples of f32: `dst` has four bytes for each, in the machine's order, and is
    /// filled whole.
    ///
    /// # Errors
    /// [`ResizeError::Unsupported`], unless the backend has such filters.
    fn resize_to_f32(&mut self, src: ImageView<'_>, plan: &ResizePlan, dst: &mut [u8]) -> Result<(), ResizeError> {
        let _ = (src, dst);
        Err(ResizeError::Unsupported { resizer: "this resizer", filter: plan.filter })
    }

    /// Does one of the two, whichever the plan's filter makes samples for. `dst` has the bytes of the output.
    ///
    /// # Errors
    /// Theirs, and [`ResizeError::Plan`] for another number of bytes.
    fn resize_into(&mut self, src: ImageView<'_>, plan: &ResizePlan, dst: &mut [u8]) -> Result<(), ResizeError> {
        if plan.filter.sample() == SampleType::F32 {
            return self.resize_to_f32(src, plan, dst);
        }
        let room = dst.len();
        let dst = ImageViewMut::new(dst, plan.output);
        let dst = dst.ok_or_else(|| ResizeError::Plan(format!("it makes {}, not {room} bytes", plan.output)))?;
        self.resize(src, plan, dst)
    }

    /// Returns the closeness of its samples to the original libraries'; selects its tests' tolerances.
    fn capability(&self) -> Capability;

    /// The same resizer taking rows, if it can.
    fn rows(&mut self) -> Option<&mut dyn RowResizer> {
        None
    }
}

/// A resizer that takes an image in strips, so that it never exists whole in memory: `begin`, `push` for each strip
/// from top to bottom, `finish`.
pub trait RowResizer {
    /// Starts an image of size `source`, even if the one before was not finished. Returns the part that this plan
    /// reads, or `None` if it does not work with rows; then [`Resizer::resize`] the whole image.
    fn begin(&mut self, source: Size, plan: &ResizePlan) -> Option<Region>;

    /// Takes the next ones of these rows, whole, of which it reads these columns.
    fn push(&mut self, strip: ImageView<'_>) -> Result<(), ResizeError>;

    /// Completes `dst` with the samples that [`Resizer::resize`] gives for the image and the plan. Missing rows are
    /// [`ResizeError::Plan`].
    fn finish(&mut self, dst: ImageViewMut<'_>) -> Result<(), ResizeError>;
}

/// Closeness of a resizer's samples to those of the libraries that its filters are named after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Its Pillow filters give Pillow's samples: within one step on 99.9 % of them and never more than two off.
    pub pillow_exact: bool,
    /// Its Pillow filters use Pillow's kernels, in any arithmetic. Otherwise they are the library's nearest kernels for
    /// the same purpose; the backend's page names them.
    pub pillow_kernels: bool,
    /// Its OpenCV filters give OpenCV's samples, every one equal; within one step for [`Filter::OpenCvCubic`], by which
    /// OpenCV's own builds differ.
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

    /// Makes [`foveate_core::Backend::health`] call `health`; without it, the backend counts as pure Rust.
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
