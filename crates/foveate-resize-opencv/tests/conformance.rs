//! The trait crate's suite, and photos decoded by Pillow, compared with Pillow's and OpenCV's results.
#![allow(clippy::unwrap_used)] // helpers of tests may panic, too

use std::path::{Path, PathBuf};

use foveate_core::{ImageView, ImageViewMut, Size};
use foveate_resize::conformance::{Difference, Promise, Tolerance, check, noise};
use foveate_resize::{Filter, Geometry, ResizeError, ResizePlan, Resizer, ResizerRegistry, SourceBox};
use foveate_resize_opencv::OpencvResizer;

const HF: Geometry = Geometry::ShortestEdgeCrop { edge: 256, crop: Size::square(224), filter: Filter::Bicubic };
const SQUASH: Geometry = Geometry::Stretch { output: Size::square(224), filter: Filter::OpenCvLinear };

/// Pillow's filters by `INTER_AREA`, `INTER_LINEAR` and `INTER_CUBIC`, on the suite's noise, which shows kernel
/// differences most: 54 steps at worst, and 6.2 % within one. Photos have a stricter limit, below.
const NOISE: Tolerance = Tolerance { name: "opencv-noise", max: 60, within_one: 0.05 };

/// The same on photos. Worst among the fixtures: 15 steps and 60 % within one, on 20 x 30 pixels that are enlarged
/// thirteen times by a cubic with a = -0.75 instead of -0.5.
const PHOTOS: Tolerance = Tolerance { name: "opencv-photos", max: 20, within_one: 0.55 };

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/goldens")
}

fn read(path: &Path) -> (Vec<u8>, Size) {
    let image = image::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).into_rgb8();
    let size = Size::new(image.width(), image.height());
    (image.into_raw(), size)
}

fn resizer() -> OpencvResizer {
    OpencvResizer::open().unwrap()
}

fn resized(pixels: &[u8], size: Size, plan: &ResizePlan) -> Result<Vec<u8>, ResizeError> {
    let mut out = vec![0; plan.output.rgb_len().unwrap()];
    let src = ImageView::new(pixels, size).unwrap();
    resizer().resize(src, plan, ImageViewMut::new(&mut out, plan.output).unwrap()).map(|()| out)
}

/// Resizes every photo for which both decoded pixels and a result exist, through `geometry`.
fn photos(results: &str, geometry: Geometry, tolerance: Tolerance) {
    let mut compared = 0;
    for entry in std::fs::read_dir(goldens().join("decoded")).unwrap() {
        let photo = entry.unwrap().path();
        let golden = goldens().join(results).join(photo.file_name().unwrap());
        if !golden.exists() {
            continue; // the same picture exists in another encoding
        }
        let (pixels, size) = read(&photo);
        let actual = resized(&pixels, size, &geometry.plan(size)).unwrap();
        tolerance.assert(&golden.display().to_string(), &actual, &read(&golden).0);
        compared += 1;
    }
    assert!(compared >= 6, "only {compared} photos in {results}");
}

#[test]
fn conforms() {
    let promise = Promise { pillow: NOISE, opencv: Tolerance::EXACT };
    let missing = check(promise, || Box::new(resizer()));
    assert_eq!(missing, [Filter::Box, Filter::Lanczos3]);
}

#[test]
fn photos_by_the_hf_recipe_are_near_pillow() {
    photos("crop_hf_pil", HF, PHOTOS);
}

#[test]
fn photos_by_the_squash_recipe_equal_opencv() {
    photos("crop_squash", SQUASH, Tolerance::EXACT);
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
