//! The trait crate's suite, and photos decoded by Pillow, compared with Pillow's results.
#![allow(clippy::unwrap_used)] // helpers of tests may panic, too

use std::path::{Path, PathBuf};

use foveate_core::{ImageView, ImageViewMut, Size};
use foveate_resize::conformance::{Promise, Tolerance, check, noise};
use foveate_resize::{Filter, Geometry, ResizeError, ResizePlan, Resizer, ResizerRegistry, SourceBox};
use foveate_resize_image::ImageResizer;

const HF: Geometry = Geometry::ShortestEdgeCrop { edge: 256, crop: Size::square(224), filter: Filter::Bicubic };

/// Pillow's kernels on noise, where the u8 between Pillow's passes clamps most: 23 steps at worst, and 95.8 % within
/// one.
const NOISE: Tolerance = Tolerance { name: "image-noise", max: 26, within_one: 0.95 };

/// The same on photos. Worst among the fixtures: 9 steps, on 257 x 255 pixels of which one axis grows by one pixel, and
/// 99.7 % within one, on 20 x 30 pixels that are enlarged thirteen times.
const PHOTOS: Tolerance = Tolerance { name: "image-photos", max: 12, within_one: 0.995 };

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/goldens")
}

fn read(path: &Path) -> (Vec<u8>, Size) {
    let image = image::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).into_rgb8();
    let size = Size::new(image.width(), image.height());
    (image.into_raw(), size)
}

fn resized(pixels: &[u8], size: Size, plan: &ResizePlan) -> Result<Vec<u8>, ResizeError> {
    let mut out = vec![0; plan.output.rgb_len().unwrap()];
    let src = ImageView::new(pixels, size).unwrap();
    ImageResizer.resize(src, plan, ImageViewMut::new(&mut out, plan.output).unwrap()).map(|()| out)
}

#[test]
fn conforms() {
    let nothing = Tolerance { name: "nothing", max: 0, within_one: 1.0 };
    let missing = check(Promise { pillow: NOISE, opencv: nothing }, || Box::new(ImageResizer));
    assert_eq!(missing, [Filter::Box, Filter::OpenCvLinear, Filter::OpenCvArea, Filter::OpenCvCubic]);
}

#[test]
fn photos_by_the_hf_recipe_are_near_pillow() {
    let mut compared = 0;
    for entry in std::fs::read_dir(goldens().join("decoded")).unwrap() {
        let photo = entry.unwrap().path();
        let golden = goldens().join("crop_hf_pil").join(photo.file_name().unwrap());
        if !golden.exists() {
            continue; // the same picture exists in another encoding
        }
        let (pixels, size) = read(&photo);
        let actual = resized(&pixels, size, &HF.plan(size)).unwrap();
        PHOTOS.assert(&golden.display().to_string(), &actual, &read(&golden).0);
        compared += 1;
    }
    assert!(compared >= 6, "only {compared} photos");
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

#[test]
fn registers_under_its_name_once() {
    let mut registry = ResizerRegistry::new("resizer", &["image"]);
    foveate_resize_image::register(&mut registry).unwrap();
    assert!(foveate_resize_image::register(&mut registry).is_err());
    registry.get("image").unwrap().open().unwrap();
}
