//! The trait crate's suite, and what is specific to OpenCV. The parity tests compare photos.
#![allow(clippy::unwrap_used)] // helpers of tests may panic, too

use foveate_core::{ImageView, ImageViewMut, Size};
use foveate_resize::conformance::{Difference, Promise, Tolerance, check, noise};
use foveate_resize::{Filter, Geometry, ResizeError, ResizePlan, Resizer, ResizerRegistry, SourceBox};
use foveate_resize_opencv::OpencvResizer;

const HF: Geometry = Geometry::ShortestEdgeCrop {
    edge: 256,
    longest: None,
    crop: Size::square(224),
    filter: Filter::Bicubic,
    ties: foveate_resize::CropTies::Down,
};

/// Pillow's filters by `INTER_AREA`, `INTER_LINEAR` and `INTER_CUBIC`, on the suite's noise, which shows kernel
/// differences most: 54 steps at worst, and 6.2 % within one.
const NOISE: Tolerance = Tolerance { name: "opencv-noise", max: 60, within_one: 0.05 };

fn resizer() -> OpencvResizer {
    OpencvResizer::open().unwrap()
}

fn resized(pixels: &[u8], size: Size, plan: &ResizePlan) -> Result<Vec<u8>, ResizeError> {
    let mut out = vec![0; plan.output.rgb_len().unwrap()];
    let src = ImageView::new(pixels, size).unwrap();
    resizer().resize(src, plan, ImageViewMut::new(&mut out, plan.output).unwrap()).map(|()| out)
}

#[test]
fn conforms() {
    let promise = Promise { pillow: NOISE, approximate: NOISE, opencv: Tolerance::EXACT };
    let missing = check(promise, || Box::new(resizer()));
    assert_eq!(missing, [Filter::Box, Filter::PillowLanczos3, Filter::Lanczos3]);
}

/// Without an average over the covered area, fine patterns would alias into coarse ones.
#[test]
fn shrinking_averages() {
    let size = Size::new(640, 640);
    let stripes: Vec<u8> = (0..size.pixels()).flat_map(|i| if i % 2 == 0 { [0; 3] } else { [255; 3] }).collect();
    for filter in [Filter::Bilinear, Filter::Bicubic] {
        let plan = Geometry::Stretch { output: Size::square(60), filter }.plan(size);
        let out = resized(&stripes, size, &plan).unwrap();
        assert!(out.iter().all(|sample| (110..=145).contains(sample)), "{filter:?} lets stripes of one pixel through");
    }
}

/// One axis shrinks while the other grows, which the recipes do not cause for any photo's shape.
#[test]
fn each_axis_goes_its_own_way() {
    let size = Size::new(64, 8);
    let pixels = noise(size);
    let stretch = |output, filter| Geometry::Stretch { output, filter };
    let narrow = Size::new(16, 8);
    let shrunk = resized(&pixels, size, &stretch(narrow, Filter::OpenCvArea).plan(size)).unwrap();
    let grown = stretch(Size::new(16, 24), Filter::OpenCvCubic).plan(narrow);
    let expected = resized(&shrunk, narrow, &grown).unwrap();
    let actual = resized(&pixels, size, &stretch(Size::new(16, 24), Filter::Bicubic).plan(size)).unwrap();
    assert_eq!(Difference::between(&actual, &expected).max, 0);
}

#[test]
fn what_it_cannot_do_is_refused() {
    let size = Size::new(20, 20);
    let pixels = noise(size);
    let between_pixels = SourceBox { x: 0.3, y: 0.0, width: 10.0, height: 10.0 };
    let plan = ResizePlan::new(between_pixels, Size::square(5), Filter::OpenCvLinear);
    assert!(matches!(resized(&pixels, size, &plan), Err(ResizeError::UnsupportedPlan { .. })));

    let strip = Size::new(1, 5000); // would be 256 x 1 280 000 before the crop
    let verdict = resized(&vec![9; 15_000], strip, &HF.plan(strip));
    assert!(matches!(verdict, Err(ResizeError::UnsupportedPlan { .. })), "{verdict:?}");
}

#[test]
fn registers_under_its_name_once() {
    let mut registry = ResizerRegistry::new("resizer", &["opencv"]);
    foveate_resize_opencv::register(&mut registry).unwrap();
    assert!(foveate_resize_opencv::register(&mut registry).is_err());
    let health = foveate_core::Backend::health(registry.get("opencv").unwrap());
    assert!(health.problem.is_none() && health.library.unwrap().starts_with("OpenCV "));
}
