//! Pillow's resize on fast_image_resize's SIMD convolutions.
//!
//! fast_image_resize alone runs the vertical pass first, so it clamps and rounds to u8 at another point than Pillow: up
//! to 5 steps apart on photos, more on noise. Here every call resamples along one axis only, in Pillow 13's order.

use fast_image_resize::images::{TypedCroppedImageMut, TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions};
use foveate_core::{CHANNELS, ImageView, ImageViewMut, Region, Size};
use foveate_resize::axis::{Axis, axes, vertical_first};
use foveate_resize::{Filter, ResizeError, ResizePlan};

use crate::exact::ExactKernel;

/// The pixel type is known at compile time. Images of any type would compile the convolutions of all types.
type Source<'a> = TypedImageRef<'a, U8x3>;

/// A convolution kernel and how far it reaches to each side, in output pixels (when shrinking).
#[derive(Clone, Copy, Debug)]
pub(crate) struct PillowKernel {
    filter: FilterType,
    own: ExactKernel,
}

impl PillowKernel {
    /// The kernel of a smooth antialiased filter; `None` for the others.
    pub(crate) fn of(filter: Filter) -> Option<Self> {
        let (filter, own) = match filter {
            Filter::Bilinear | Filter::TorchBilinear => (FilterType::Bilinear, ExactKernel::Triangle),
            Filter::Bicubic | Filter::TorchBicubic => (FilterType::CatmullRom, ExactKernel::Cubic),
            Filter::Lanczos3 => (FilterType::Lanczos3, ExactKernel::Lanczos),
            _ => return None,
        };
        Some(Self { filter, own })
    }

    fn options(self, x: Axis, y: Axis) -> ResizeOptions {
        ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(self.filter))
            .crop(x.at, y.at, x.len, y.len)
            .use_alpha(false)
    }
}

/// Resamples along one axis, then along the other.
#[derive(Debug, Default)]
pub(crate) struct TwoPass {
    resizer: fast_image_resize::Resizer,
    #[cfg(target_arch = "x86_64")]
    across: crate::across::AcrossPass,
    /// The image between the passes.
    between: Vec<u8>,
    /// The image that comes in strips.
    strips: Option<PillowStrips>,
}

/// An image that comes in strips, whose horizontal pass is first.
#[derive(Clone, Copy, Debug)]
struct PillowStrips {
    plan: ResizePlan,
    kernel: PillowKernel,
    x: Axis,
    y: Axis,
    /// The source rows that the vertical pass reads.
    rows: (u32, u32),
    /// The next strip's first source row, one of `rows`.
    next: u32,
}

impl PillowStrips {
    /// Size of the image between the passes.
    fn between(&self) -> Size {
        Size::new(self.x.target, self.rows.1 - self.rows.0)
    }
}

impl TwoPass {
    /// Resamples into the plan's placement; the plan must have been checked.
    pub(crate) fn resize(
        &mut self,
        src: ImageView<'_>,
        plan: &ResizePlan,
        kernel: PillowKernel,
        dst: ImageViewMut<'_>,
    ) -> Result<(), ResizeError> {
        let size = src.size();
        if let Some(part) = self.begin(size, plan, kernel) {
            let line = size.width as usize * CHANNELS;
            let rows = &src.as_slice()[part.rows.start as usize * line..part.rows.end as usize * line];
            self.push(ImageView::new(rows, Size::new(size.width, part.rows.len() as u32)).ok_or_else(out_of_turn)?)?;
            return self.finish(dst);
        }
        let [x, y] = axes(plan, size);
        let src = image(src.as_slice(), size)?;
        if x.is_copy() || y.is_copy() {
            return self.last_pass(&src, x, y, kernel, plan, dst);
        }
        let columns = x.reads(kernel.own.support());
        let y_only = Axis::unchanged(plan.placement.size.height);
        let mut between = std::mem::take(&mut self.between);
        let middle = self.first_pass(&src, Axis::copy_of(columns, size.width), y, kernel, &mut between);
        let result = middle.and_then(|middle| self.last_pass(&middle, x.within(columns), y_only, kernel, plan, dst));
        self.between = between;
        result
    }

    /// Starts an image that comes in strips and returns the part that is read; `None` if the plan, which must have
    /// been checked, does not have a horizontal pass first and a vertical one then.
    pub(crate) fn begin(&mut self, source: Size, plan: &ResizePlan, kernel: PillowKernel) -> Option<Region> {
        let [x, y] = axes(plan, source);
        self.strips = None;
        if x.is_copy() || y.is_copy() || vertical_first(plan, source) {
            return None;
        }
        let rows = y.reads(kernel.own.support());
        let strips = PillowStrips { plan: *plan, kernel, x, y, rows, next: rows.0 };
        let len = strips.between().rgb_len()?;
        self.between.resize(len.max(self.between.len()), 0);
        self.strips = Some(strips);
        let columns = x.reads(kernel.own.support());
        Some(Region { columns: columns.0..columns.1, rows: rows.0..rows.1 })
    }

    /// The horizontal pass of a strip.
    pub(crate) fn push(&mut self, strip: ImageView<'_>) -> Result<(), ResizeError> {
        let Some(strips) = &mut self.strips else { return Err(out_of_turn()) };
        let size = strip.size();
        if size.height > strips.rows.1 - strips.next || size.width != strips.x.whole {
            return Err(ResizeError::Plan(format!("a strip of {size} is not of the rows that the plan reads")));
        }
        let part = Size::new(strips.x.target, size.height);
        let row = part.width as usize * CHANNELS;
        let start = (strips.next - strips.rows.0) as usize * row;
        strips.next += size.height;
        let x = strips.x;
        let kernel = strips.kernel;
        let mut between = std::mem::take(&mut self.between);
        let out = &mut between[start..start + part.height as usize * row];
        let result = self.across(strip.as_slice(), x, kernel, out);
        self.between = between;
        result
    }

    /// The horizontal pass over whole rows.
    fn across(&mut self, rows: &[u8], x: Axis, kernel: PillowKernel, out: &mut [u8]) -> Result<(), ResizeError> {
        #[cfg(target_arch = "x86_64")]
        if self.across.run(rows, x, kernel.own, out) {
            return Ok(());
        }
        let height = (rows.len() / (x.whole as usize * CHANNELS)) as u32;
        let mut out = image_mut(out, Size::new(x.target, height))?;
        let rows = image(rows, Size::new(x.whole, height))?;
        self.resizer.resize_typed(&rows, &mut out, &kernel.options(x, Axis::unchanged(height))).map_err(backend)
    }

    /// The vertical pass.
    pub(crate) fn finish(&mut self, dst: ImageViewMut<'_>) -> Result<(), ResizeError> {
        let strips = self.strips.take().filter(|strips| strips.next == strips.rows.1).ok_or_else(out_of_turn)?;
        strips.plan.check(Size::new(strips.x.whole, strips.y.whole), dst.size())?;
        let between = std::mem::take(&mut self.between);
        let size = strips.between();
        let y = strips.y.within(strips.rows);
        let result =
            image(&between[..size.width as usize * size.height as usize * CHANNELS], size).and_then(|middle| {
                self.last_pass(&middle, Axis::unchanged(size.width), y, strips.kernel, &strips.plan, dst)
            });
        self.between = between;
        result
    }

    /// Resamples into scratch memory and returns it as an image.
    fn first_pass<'a>(
        &mut self,
        src: &Source<'_>,
        x: Axis,
        y: Axis,
        kernel: PillowKernel,
        scratch: &'a mut Vec<u8>,
    ) -> Result<Source<'a>, ResizeError> {
        let size = Size::new(x.target, y.target);
        let len = size.rgb_len().ok_or_else(|| ResizeError::Plan(format!("no memory for {size} between passes")))?;
        if scratch.len() < len {
            scratch.resize(len, 0);
        }
        let mut out = image_mut(&mut scratch[..len], size)?;
        self.resizer.resize_typed(src, &mut out, &kernel.options(x, y)).map_err(backend)?;
        image(&scratch[..len], size)
    }

    /// Resamples into the plan's placement in `dst`.
    fn last_pass(
        &mut self,
        src: &Source<'_>,
        x: Axis,
        y: Axis,
        kernel: PillowKernel,
        plan: &ResizePlan,
        dst: ImageViewMut<'_>,
    ) -> Result<(), ResizeError> {
        let place = plan.placement;
        let mut out = image_mut(dst.into_slice(), plan.output)?;
        let Size { width, height } = place.size;
        let mut part = TypedCroppedImageMut::from_ref(&mut out, place.x, place.y, width, height).map_err(backend)?;
        self.resizer.resize_typed(src, &mut part, &kernel.options(x, y)).map_err(backend)
    }
}

fn image(samples: &[u8], size: Size) -> Result<Source<'_>, ResizeError> {
    Source::from_buffer(size.width, size.height, samples).map_err(backend)
}

fn image_mut(samples: &mut [u8], size: Size) -> Result<TypedImage<'_, U8x3>, ResizeError> {
    TypedImage::from_buffer(size.width, size.height, samples).map_err(backend)
}

fn backend(error: impl std::error::Error + Send + Sync + 'static) -> ResizeError {
    ResizeError::Backend(error.into())
}

fn out_of_turn() -> ResizeError {
    ResizeError::Plan("rows of the image are missing".into())
}
