//! The trait crate's suite, and refusals. The parity tests compare photos.
#![allow(clippy::unwrap_used)] // helpers of tests may panic, too

use foveate_core::{ImageView, ImageViewMut, Size};
use foveate_resize::conformance::{Promise, Tolerance, check, noise};
use foveate_resize::{Filter, Geometry, ResizeError, ResizePlan, Resizer, SourceBox};
use foveate_resize_image::ImageResizer;

const HF: Geometry = Geometry::ShortestEdgeCrop {
    edge: 256,
    longest: None,
    crop: Size::square(224),
    filter: Filter::Bicubic,
    ties: foveate_resize::CropTies::Down,
};

/// Pillow's kernels on noise, where the u8 between Pillow's passes clamps most: 23 steps at worst, and 95.8 % within
/// one.
const NOISE: Tolerance = Tolerance { name: "image-noise", max: 26, within_one: 0.95 };

fn resized(pixels: &[u8], size: Size, plan: &ResizePlan) -> Result<Vec<u8>, ResizeError> {
    let mut out = vec![0; plan.output.rgb_len().unwrap()];
    let src = ImageView::new(pixels, size).unwrap();
    ImageResizer.resize(src, plan, ImageViewMut::new(&mut out, plan.output).unwrap()).map(|()| out)
}

#[test]
fn conforms() {
    let nothing = Tolerance { name: "nothing", max: 0, within_one: 1.0 };
    let missing = check(Promise { pillow: NOISE, approximate: NOISE, opencv: nothing }, || Box::new(ImageResizer));
    assert_eq!(missing, [Filter::Box, Filter::OpenCvLinear, Filter::OpenCvArea, Filter::OpenCvCubic]);
}

#[test]
fn what_it_cannot_do_is_refused() {
    let size = Size::new(20, 20);
    let pixels = noise(size);
    let between_pixels = SourceBox { x: 0.3, y: 0.0, width: 10.0, height: 10.0 };
    let plan = ResizePlan::new(between_pixels, Size::square(5), Filter::Bicubic);
    assert!(matches!(resized(&pixels, size, &plan), Err(ResizeError::UnsupportedPlan { .. })));

    let strip = Size::new(1, 5000); // would be 256 x 1 280 000 before the crop
    let verdict = resized(&vec![9; 15_000], strip, &HF.plan(strip));
    assert!(matches!(verdict, Err(ResizeError::UnsupportedPlan { .. })), "{verdict:?}");
}
