#![doc = include_str!("../README.md")]

#[cfg(target_arch = "x86_64")]
mod across;
mod exact;
mod float;
mod opencv;
mod pillow;
mod rows;

use foveate_core::{ImageView, ImageViewMut, Region, RegistryError, Size};
use foveate_resize::{
    Capability, Filter, ResizeError, ResizePlan, Resizer, ResizerBackend, ResizerRegistry, RowResizer,
};

/// The backend's name in registries and on the command line.
pub const NAME: &str = "fir";

/// Adds this backend to `registry`.
pub fn register(registry: &mut ResizerRegistry) -> Result<(), RegistryError> {
    registry.register(ResizerBackend::new(
        NAME,
        "SIMD resampling with fast_image_resize, in Pillow's pass order and rounding",
        || Ok(Box::new(FirResizer::new())),
    ))
}

/// Resamples RGB8 images on one thread, with SIMD where the processor has it.
///
/// - [`Filter::Bilinear`], [`Filter::Bicubic`], [`Filter::Lanczos3`]: fast_image_resize's convolutions, one axis at a
///   time in Pillow's order with u8 between. Its coefficients have 16 bits where Pillow's have 22. Within 1 step of
///   Pillow on at least 99.9 % of samples and never more than 2 off
///   (`foveate_resize::conformance::Tolerance::PILLOW_U8`).
/// - [`Filter::PillowBilinear`], [`Filter::PillowBicubic`], [`Filter::PillowLanczos3`], [`Filter::Box`]: Pillow's
///   arithmetic, every sample equal. If a box's edge lies exactly on a pixel's centre, the last bit of the arithmetic
///   decides whether the pixel counts.
/// - [`Filter::OpenCvLinear`]: OpenCV's fixed-point arithmetic, every sample equal.
#[derive(Debug, Default)]
pub struct FirResizer {
    pillow: pillow::TwoPass,
    exact: exact::ExactTwoPass,
    opencv: opencv::OpencvLinear,
    float: float::FloatLinear,
}

impl FirResizer {
    /// A resizer without scratch memory yet.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Resizer for FirResizer {
    fn resize(&mut self, src: ImageView<'_>, plan: &ResizePlan, mut dst: ImageViewMut<'_>) -> Result<(), ResizeError> {
        plan.check(src.size(), dst.size())?;
        if plan.is_padded() {
            dst.as_mut_slice().fill(0);
        }
        match plan.filter {
            Filter::OpenCvLinear => {
                self.opencv.resize(src, plan, dst);
                Ok(())
            }
            filter => {
                if let Some(kernel) = exact::ExactKernel::of(filter) {
                    self.exact.resize(src, plan, kernel, dst);
                    return Ok(());
                }
                match pillow::PillowKernel::of(filter) {
                    Some(kernel) => self.pillow.resize(src, plan, kernel, dst),
                    None => Err(ResizeError::Unsupported { resizer: NAME, filter }),
                }
            }
        }
    }

    fn resize_to_f32(&mut self, src: ImageView<'_>, plan: &ResizePlan, dst: &mut [u8]) -> Result<(), ResizeError> {
        plan.check(src.size(), plan.output)?;
        if plan.filter != Filter::TorchBilinearF32 || dst.len() != plan.format().bytes() {
            return Err(ResizeError::Unsupported { resizer: NAME, filter: plan.filter });
        }
        if plan.is_padded() {
            dst.fill(0);
        }
        self.float.resize(src, plan, dst);
        Ok(())
    }

    fn capability(&self) -> Capability {
        Capability { pillow_exact: true, pillow_kernels: true, opencv_exact: true }
    }

    fn rows(&mut self) -> Option<&mut dyn RowResizer> {
        Some(self)
    }
}

impl RowResizer for FirResizer {
    fn begin(&mut self, source: Size, plan: &ResizePlan) -> Option<Region> {
        plan.check(source, plan.output).ok()?;
        self.pillow.begin(source, plan, pillow::PillowKernel::of(plan.filter)?)
    }

    fn push(&mut self, strip: ImageView<'_>) -> Result<(), ResizeError> {
        self.pillow.push(strip)
    }

    fn finish(&mut self, mut dst: ImageViewMut<'_>) -> Result<(), ResizeError> {
        dst.as_mut_slice().fill(0);
        self.pillow.finish(dst)
    }
}
