//! The conformance suite: the behaviour required of every resizer, for backends' tests.
//!
//! [`check`] runs all checks. It compares results with Pillow and OpenCV within a named [`Tolerance`]. A filter that a
//! backend refuses with [`ResizeError::Unsupported`] is skipped and returned by name, so that the test can report it.

mod goldens;
mod tolerance;

use foveate_core::{CHANNELS, ImageView, ImageViewMut, Size};

use crate::{Capability, Filter, Geometry, ResizeError, ResizePlan, Resizer, SourceBox};

pub use tolerance::{Difference, Tolerance};

/// All filters.
pub const FILTERS: [Filter; 10] = [
    Filter::Box,
    Filter::PillowBilinear,
    Filter::PillowBicubic,
    Filter::PillowLanczos3,
    Filter::Bilinear,
    Filter::Bicubic,
    Filter::Lanczos3,
    Filter::OpenCvLinear,
    Filter::OpenCvArea,
    Filter::OpenCvCubic,
];

/// Permitted differences of a backend's results from the original libraries'.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// Box, PillowBilinear, PillowBicubic and PillowLanczos3, against Pillow.
    pub pillow: Tolerance,
    /// Bilinear, Bicubic and Lanczos3, against Pillow.
    pub approximate: Tolerance,
    /// OpenCvLinear and OpenCvArea, against OpenCV. OpenCvCubic may be one step off even where this is exact, because
    /// OpenCV's own builds differ by as much.
    pub opencv: Tolerance,
}

impl Promise {
    fn of(&self, filter: Filter) -> Tolerance {
        match filter {
            Filter::OpenCvCubic if self.opencv == Tolerance::EXACT => Tolerance::ONE_STEP,
            Filter::OpenCvLinear | Filter::OpenCvArea | Filter::OpenCvCubic => self.opencv,
            Filter::Bilinear | Filter::Bicubic | Filter::Lanczos3 => self.approximate,
            _ => self.pillow,
        }
    }

    /// Fails a backend that claims to be exact and promises less.
    fn keeps(&self, capability: Capability) {
        for (exact, promised, least) in [
            (capability.pillow_exact, self.approximate, Tolerance::PILLOW_U8),
            (capability.opencv_exact, self.opencv, Tolerance::EXACT),
        ] {
            let kept = promised.max <= least.max && promised.within_one >= least.within_one;
            assert!(kept || !exact, "it claims to be within '{}' and promises '{}'", least.name, promised.name);
        }
    }
}

/// Runs every check on resizers made by `make`. Returns the filters that the backend lacks.
///
/// # Panics
/// If a resizer does not conform; the message says how.
pub fn check(promise: Promise, make: impl Fn() -> Box<dyn Resizer>) -> Vec<Filter> {
    let (has, has_not): (Vec<_>, Vec<_>) = FILTERS.into_iter().partition(|&filter| supports(make().as_mut(), filter));
    assert!(!has.is_empty(), "a resizer without any filter");
    promise.keeps(make().capability());
    for &filter in &has {
        let resizer = &mut *make();
        unchanged_size_is_a_copy(resizer, filter);
        constant_images_stay_constant(resizer, filter);
        crops_are_parts_of_the_whole(resizer, filter, promise.of(filter));
        every_sample_is_written(resizer, filter);
        padding_is_black(resizer, filter);
        extreme_aspects_work(resizer, filter);
        bad_plans_are_refused(resizer, filter);
    }
    equals_the_goldens(&has, promise, &make);
    history_does_not_matter(&has, &make);
    has_not
}

/// Noise of `size`, `[height, width, 3]`; the same for the same size on every machine (xorshift32).
pub fn noise(size: Size) -> Vec<u8> {
    let mut state = size.width.wrapping_mul(1009).wrapping_add(size.height);
    let mut noise = vec![0; samples(size)];
    for sample in &mut noise {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        *sample = (state >> 11) as u8;
    }
    noise
}

/// Resamples `pixels` into an output that was filled with 0xA5.
pub fn resized(resizer: &mut dyn Resizer, pixels: &[u8], size: Size, plan: &ResizePlan) -> Vec<u8> {
    try_resized(resizer, pixels, size, plan)
        .unwrap_or_else(|error| panic!("{size} by {plan:?} must work, but: {error}"))
}

fn try_resized(
    resizer: &mut dyn Resizer,
    pixels: &[u8],
    size: Size,
    plan: &ResizePlan,
) -> Result<Vec<u8>, ResizeError> {
    let mut out = vec![0xA5; samples(plan.output)];
    let src = ImageView::new(pixels, size).expect("samples fit the size");
    let dst = ImageViewMut::new(&mut out, plan.output).expect("made to fit");
    resizer.resize(src, plan, dst).map(|()| out)
}

fn samples(size: Size) -> usize {
    size.width as usize * size.height as usize * CHANNELS
}

fn supports(resizer: &mut dyn Resizer, filter: Filter) -> bool {
    let size = Size::new(6, 5);
    let plan = ResizePlan::new(SourceBox::whole(size), Size::new(4, 3), filter);
    match try_resized(resizer, &noise(size), size, &plan) {
        Ok(_) => true,
        Err(ResizeError::Unsupported { .. }) => false,
        Err(error) => panic!("{filter:?}: neither done nor unsupported, but: {error}"),
    }
}

fn unchanged_size_is_a_copy(resizer: &mut dyn Resizer, filter: Filter) {
    let size = Size::new(23, 17);
    let pixels = noise(size);
    let whole = ResizePlan::new(SourceBox::whole(size), size, filter);
    assert_eq!(resized(resizer, &pixels, size, &whole), pixels, "{filter:?}: an unchanged size must be a copy");

    let part = Size::new(9, 8);
    let plan = ResizePlan::new(SourceBox { x: 5.0, y: 3.0, width: 9.0, height: 8.0 }, part, filter);
    let expected = cut(&pixels, size, [5, 3], part);
    assert_eq!(resized(resizer, &pixels, size, &plan), expected, "{filter:?}: a cut of whole pixels must be a copy");
}

fn constant_images_stay_constant(resizer: &mut dyn Resizer, filter: Filter) {
    for colour in [[0, 0, 0], [255, 255, 255], [1, 128, 254]] {
        for (size, output) in [
            (Size::new(50, 37), Size::new(16, 20)),
            (Size::new(7, 5), Size::square(31)),
            (Size::new(2000, 30), Size::square(24)),
            (Size::square(48), Size::square(24)),
        ] {
            let pixels = colour.repeat(size.pixels() as usize);
            let plan = ResizePlan::new(SourceBox::whole(size), output, filter);
            let out = resized(resizer, &pixels, size, &plan);
            let same = out.chunks_exact(CHANNELS).all(|pixel| pixel == colour);
            assert!(same, "{filter:?}: an image of {colour:?} became another colour, {size} to {output}");
        }
    }
}

/// One resample of a box equals resizing the whole image and cropping the result.
fn crops_are_parts_of_the_whole(resizer: &mut dyn Resizer, filter: Filter, tolerance: Tolerance) {
    for (size, edge) in [(Size::new(67, 45), 30), (Size::new(19, 31), 40), (Size::square(60), 30)] {
        let pixels = noise(size);
        let crop = Geometry::ShortestEdgeCrop {
            edge,
            longest: None,
            crop: Size::square(24),
            filter,
            ties: crate::CropTies::Down,
        }
        .plan(size);
        let scaled = crop.scaled(size);
        let whole = resized(resizer, &pixels, size, &ResizePlan::new(SourceBox::whole(size), scaled, filter));
        let at = [(scaled.width - 24) / 2, (scaled.height - 24) / 2];
        let expected = cut(&whole, scaled, at, Size::square(24));
        let what = format!("{filter:?}: resize and crop in one, {size} to {scaled}");
        tolerance.assert(&what, &resized(resizer, &pixels, size, &crop), &expected);
    }
}

fn every_sample_is_written(resizer: &mut dyn Resizer, filter: Filter) {
    let size = Size::new(33, 21);
    let output = Size::new(12, 14);
    let pixels = noise(size);
    for plan in [
        ResizePlan::new(SourceBox::whole(size), output, filter),
        Geometry::ShortestEdgeCrop { edge: 10, longest: None, crop: output, filter, ties: crate::CropTies::Down }
            .plan(size),
    ] {
        let outputs = [0x00, 0xFF].map(|before| {
            let mut out = vec![before; samples(output)];
            let src = ImageView::new(&pixels, size).expect("samples fit the size");
            resizer
                .resize(src, &plan, ImageViewMut::new(&mut out, output).expect("made to fit"))
                .expect("a fitting plan");
            out
        });
        assert_eq!(outputs[0], outputs[1], "{filter:?}: the output depends on what was there before");
    }
}

fn padding_is_black(resizer: &mut dyn Resizer, filter: Filter) {
    let size = Size::new(40, 60);
    let output = Size::new(30, 28);
    let plan =
        Geometry::ShortestEdgeCrop { edge: 20, longest: None, crop: output, filter, ties: crate::CropTies::Down }
            .plan(size);
    let out = resized(resizer, &vec![200; samples(size)], size, &plan);
    for (index, pixel) in out.chunks_exact(CHANNELS).enumerate() {
        let x = index as u32 % output.width;
        let inside = (plan.placement.x..plan.placement.x + 20).contains(&x);
        assert_eq!(pixel, [if inside { 200 } else { 0 }; CHANNELS], "{filter:?}: pixel {index} of a padded output");
    }
}

fn extreme_aspects_work(resizer: &mut dyn Resizer, filter: Filter) {
    let hf = Geometry::ShortestEdgeCrop {
        edge: 32,
        longest: None,
        crop: Size::square(28),
        filter,
        ties: crate::CropTies::Down,
    };
    let squash = Geometry::Stretch { output: Size::square(28), filter };
    for size in [Size::new(1, 1), Size::new(1, 3000), Size::new(3000, 1), Size::new(5, 400), Size::new(400, 5)] {
        for geometry in [hf, squash] {
            let out = resized(resizer, &vec![77; samples(size)], size, &geometry.plan(size));
            assert!(out.iter().all(|&sample| sample == 77), "{filter:?}: {size} by {geometry:?}");
        }
    }
}

fn bad_plans_are_refused(resizer: &mut dyn Resizer, filter: Filter) {
    let size = Size::new(10, 8);
    let output = Size::square(4);
    let pixels = noise(size);
    let good = ResizePlan::new(SourceBox::whole(size), output, filter);
    let beyond = SourceBox { width: 10.5, ..good.source };
    let negative = SourceBox { x: -1.0, ..good.source };
    let nan = SourceBox { height: f64::NAN, ..good.source };
    for source in [beyond, negative, nan] {
        let result = try_resized(resizer, &pixels, size, &ResizePlan { source, ..good });
        assert!(matches!(result, Err(ResizeError::Plan(_))), "{filter:?}: {source:?} leaves the image");
    }
    let mut out = vec![0; samples(Size::square(5))];
    let src = ImageView::new(&pixels, size).expect("samples fit the size");
    let dst = ImageViewMut::new(&mut out, Size::square(5)).expect("made to fit");
    let result = resizer.resize(src, &good, dst);
    assert!(matches!(result, Err(ResizeError::Plan(_))), "{filter:?}: the plan makes another size than the output");
    resized(resizer, &pixels, size, &good); // and none of it broke the resizer
}

fn equals_the_goldens(has: &[Filter], promise: Promise, make: &impl Fn() -> Box<dyn Resizer>) {
    let mut resizer = make();
    for golden in goldens::goldens() {
        let filter = golden.geometry.filter();
        if has.contains(&filter) {
            let plan = golden.geometry.plan(golden.source);
            let actual = resized(resizer.as_mut(), &noise(golden.source), golden.source, &plan);
            let what = format!("{} by {:?}", golden.source, golden.geometry);
            promise.of(filter).assert(&what, &actual, golden.expected);
        }
    }
}

/// A used resizer gives the same samples as a new one, after errors as well.
fn history_does_not_matter(has: &[Filter], make: &impl Fn() -> Box<dyn Resizer>) {
    let mut used = make();
    for round in 0..2 {
        for golden in goldens::goldens().into_iter().filter(|golden| has.contains(&golden.geometry.filter())) {
            let pixels = noise(golden.source);
            let plan = golden.geometry.plan(golden.source);
            let wrong = ResizePlan { source: SourceBox { x: 1e9, ..plan.source }, ..plan };
            assert!(try_resized(used.as_mut(), &pixels, golden.source, &wrong).is_err());
            let again = resized(used.as_mut(), &pixels, golden.source, &plan);
            let fresh = resized(make().as_mut(), &pixels, golden.source, &plan);
            assert_eq!(again, fresh, "round {round}: {} by {:?}", golden.source, golden.geometry);
        }
    }
}

/// The part of the image that starts at pixel `[x, y]`.
fn cut(pixels: &[u8], size: Size, [x, y]: [u32; 2], part: Size) -> Vec<u8> {
    let rows = pixels.chunks_exact(size.width as usize * CHANNELS).skip(y as usize).take(part.height as usize);
    rows.flat_map(|row| &row[x as usize * CHANNELS..][..part.width as usize * CHANNELS]).copied().collect()
}
