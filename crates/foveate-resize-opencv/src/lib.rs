#![doc = include_str!("../README.md")]

mod images;
mod kernel;
mod library;

use foveate_core::{ImageView, ImageViewMut, RegistryError};
use foveate_resize::{Capability, ResizeError, ResizePlan, Resizer, ResizerBackend, ResizerRegistry, TwoSteps};
use kernel::Way;
use opencv::core::{MatTrait, MatTraitConst};

/// The backend's name in registries and on the command line.
pub const NAME: &str = "opencv";

/// Adds this backend to `registry`.
///
/// # Errors
/// If the name is taken.
pub fn register(registry: &mut ResizerRegistry) -> Result<(), RegistryError> {
    let about = "OpenCV's resize: its linear, area and cubic; Pillow's filters by area and cubic";
    registry.register(
        ResizerBackend::new(NAME, about, || Ok(Box::new(OpencvResizer::open()?))).with_health(library::health),
    )
}

/// Resamples RGB8 images with OpenCV, on the calling thread.
///
/// - `OpenCvLinear`, `OpenCvArea`, `OpenCvCubic`: `cv::resize` itself.
/// - `Bilinear`, `Bicubic`: OpenCV's only antialiased filter is the mean of an area. A shrinking axis is therefore
///   resampled by `INTER_AREA`, a growing one by `INTER_LINEAR` or `INTER_CUBIC` (a = -0.75 where Pillow has -0.5).
/// - Others are [`ResizeError::Unsupported`].
///
/// The whole image is resized and then cropped, as OpenCV programs do, so that a crop's samples are OpenCV's, too. A
/// plan that cannot be split into these two steps is [`ResizeError::UnsupportedPlan`]. So is one with more than 2^26
/// pixels between the steps. Outputs without a crop are written in place; the image before a crop is in memory that is
/// reused.
#[derive(Debug, Default)]
pub struct OpencvResizer {
    /// The whole resized image, before the crop.
    scaled: Vec<u8>,
    /// The image after the first of two axes that need different kernels.
    between: Vec<u8>,
}

/// Most pixels of an image between the steps: a strip one pixel wide becomes an enormous image before it is cropped.
const MAX_BETWEEN: u64 = 1 << 26;

/// Scratch memory beyond this is freed after the image that needed it.
const KEEP_BYTES: usize = 64 << 20;

impl OpencvResizer {
    /// A resizer without scratch memory yet. Sets OpenCV's threads to one, for the whole process.
    ///
    /// # Errors
    /// [`ResizeError::Unavailable`] if OpenCV refuses that.
    pub fn open() -> Result<Self, ResizeError> {
        library::set_up()?;
        Ok(Self::default())
    }

    fn resample(
        &mut self,
        src: ImageView<'_>,
        plan: &ResizePlan,
        (steps, way): (TwoSteps, Way),
        dst: ImageViewMut<'_>,
    ) -> Result<(), ResizeError> {
        let source = images::readable(src.as_slice(), src.size())?;
        let mut output = images::writable(dst.into_slice(), plan.output)?;
        let mut place = output.roi_mut(images::placed(plan.placement)?).map_err(library::fault)?;
        if steps.scaled == plan.placement.size {
            return kernel::resample(&source, way, &mut self.between, &mut place);
        }
        let kept = images::kept(steps, plan.placement)?;
        if way == Way::Copy {
            return source.roi(kept).and_then(|part| part.copy_to(&mut place)).map_err(library::fault);
        }
        let mut scaled = images::writable(images::scratch(&mut self.scaled, steps.scaled)?, steps.scaled)?;
        kernel::resample(&source, way, &mut self.between, &mut scaled)?;
        scaled.roi(kept).and_then(|part| part.copy_to(&mut place)).map_err(library::fault)
    }
}

impl Resizer for OpencvResizer {
    fn resize(&mut self, src: ImageView<'_>, plan: &ResizePlan, mut dst: ImageViewMut<'_>) -> Result<(), ResizeError> {
        plan.check(src.size(), dst.size())?;
        let steps = plan.two_steps(src.size()).ok_or_else(|| refused("the box lies between pixels".to_owned()))?;
        let unsupported = ResizeError::Unsupported { resizer: NAME, filter: plan.filter };
        let way = Way::of(plan.filter, src.size(), steps.scaled).ok_or(unsupported)?;
        if steps.scaled.pixels() > MAX_BETWEEN {
            return Err(refused(format!("of {} it would make {} before it is cut", src.size(), steps.scaled)));
        }
        if plan.is_padded() {
            dst.as_mut_slice().fill(0);
        }
        let outcome = self.resample(src, plan, (steps, way), dst);
        for buffer in [&mut self.scaled, &mut self.between] {
            if buffer.len() > KEEP_BYTES {
                *buffer = Vec::new();
            }
        }
        outcome
    }

    fn capability(&self) -> Capability {
        Capability { pillow_exact: false, pillow_kernels: false, opencv_exact: true }
    }
}

fn refused(reason: String) -> ResizeError {
    ResizeError::UnsupportedPlan { resizer: NAME, reason }
}
