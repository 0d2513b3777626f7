#![doc = include_str!("../README.md")]

use foveate_core::{CHANNELS, ImageView, ImageViewMut, RegistryError, Size};
use foveate_resize::{Capability, Filter, ResizeError, ResizePlan, Resizer, ResizerBackend, ResizerRegistry, TwoSteps};
use image::imageops::{self, FilterType};
use image::{ImageBuffer, Rgb};

/// The backend's name in registries and on the command line.
pub const NAME: &str = "image";

/// Adds this backend to `registry`.
///
/// # Errors
/// If the name is taken.
pub fn register(registry: &mut ResizerRegistry) -> Result<(), RegistryError> {
    let about = "the image crate's resampling, in 32-bit floats: slow, a reference";
    registry.register(ResizerBackend::new(NAME, about, || Ok(Box::new(ImageResizer))))
}

/// Resamples RGB8 images with the `image` crate, on one thread.
///
/// [`Filter::Bilinear`], [`Filter::Bicubic`] and [`Filter::Lanczos3`] have Pillow's kernels, antialiased, but not its
/// arithmetic: the vertical pass comes first, and the image between the passes is 32-bit float instead of u8. Others
/// are [`ResizeError::Unsupported`].
///
/// The whole image is resized and then cropped. A plan that cannot be split into these two steps is
/// [`ResizeError::UnsupportedPlan`]. So is one with more than 2^26 pixels in an image between the steps or the passes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImageResizer;

/// Most pixels of an image between the steps (3 bytes each) or between the passes (16 bytes each): a strip one pixel
/// wide becomes an enormous image before it is cropped.
const MAX_BETWEEN: u64 = 1 << 26;

impl Resizer for ImageResizer {
    fn resize(&mut self, src: ImageView<'_>, plan: &ResizePlan, mut dst: ImageViewMut<'_>) -> Result<(), ResizeError> {
        plan.check(src.size(), dst.size())?;
        let filter = kernel(plan.filter)?;
        let steps = plan.two_steps(src.size()).ok_or_else(|| refused("the box lies between pixels".to_owned()))?;
        check_cost(src.size(), steps.scaled)?;
        if plan.is_padded() {
            dst.as_mut_slice().fill(0);
        }
        if steps.scaled == src.size() {
            keep(src.as_slice(), steps, plan, dst);
            return Ok(());
        }
        let width = src.size().width;
        let height = src.size().height;
        let source = ImageBuffer::<Rgb<u8>, _>::from_raw(width, height, src.as_slice())
            .ok_or_else(|| ResizeError::Backend("no image of these samples".into()))?;
        let scaled = imageops::resize(&source, steps.scaled.width, steps.scaled.height, filter);
        keep(scaled.as_raw(), steps, plan, dst);
        Ok(())
    }

    fn capability(&self) -> Capability {
        Capability { pillow_exact: false, pillow_kernels: true, opencv_exact: false }
    }
}

fn kernel(filter: Filter) -> Result<FilterType, ResizeError> {
    match filter.approximate() {
        Filter::Bilinear => Ok(FilterType::Triangle),
        Filter::Bicubic => Ok(FilterType::CatmullRom),
        Filter::Lanczos3 => Ok(FilterType::Lanczos3),
        _ => Err(ResizeError::Unsupported { resizer: NAME, filter }),
    }
}

fn check_cost(source: Size, scaled: Size) -> Result<(), ResizeError> {
    let between_passes = Size::new(source.width, scaled.height);
    match [between_passes, scaled].into_iter().find(|size| size.pixels() > MAX_BETWEEN) {
        Some(size) => Err(refused(format!("of {source} it would make {size} before it is cut"))),
        None => Ok(()),
    }
}

fn refused(reason: String) -> ResizeError {
    ResizeError::UnsupportedPlan { resizer: NAME, reason }
}

/// The second step: copies the kept part of `scaled` to the plan's place in `dst`.
fn keep(scaled: &[u8], steps: TwoSteps, plan: &ResizePlan, dst: ImageViewMut<'_>) {
    let place = plan.placement;
    let [skipped_columns, skipped_rows] = steps.keep_from.map(|pixels| pixels as usize);
    let kept = place.size.width as usize * CHANNELS;
    let from = scaled.chunks_exact(steps.scaled.width as usize * CHANNELS).skip(skipped_rows);
    let to = dst.into_slice().chunks_exact_mut(plan.output.width as usize * CHANNELS);
    let to = to.skip(place.y as usize).take(place.size.height as usize);
    for (to, from) in to.zip(from) {
        to[place.x as usize * CHANNELS..][..kept].copy_from_slice(&from[skipped_columns * CHANNELS..][..kept]);
    }
}
