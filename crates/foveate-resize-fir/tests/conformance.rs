//! The trait crate's suite, and photos decoded by Pillow, compared with Pillow's and OpenCV's results.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // helpers of tests may panic and talk, too

use std::path::{Path, PathBuf};

use foveate_core::{ImageView, ImageViewMut, Size};
use foveate_resize::conformance::{Difference, Promise, Tolerance, check};
use foveate_resize::{Filter, Geometry, Resizer, ResizerRegistry};
use foveate_resize_fir::FirResizer;

const HF: Geometry = Geometry::ShortestEdgeCrop { edge: 256, crop: Size::square(224), filter: Filter::Bicubic };
const SQUASH: Geometry = Geometry::Stretch { output: Size::square(224), filter: Filter::OpenCvLinear };

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/goldens")
}

fn read(path: &Path) -> (Vec<u8>, Size) {
    let image = image::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).into_rgb8();
    let size = Size::new(image.width(), image.height());
    (image.into_raw(), size)
}

/// Resizes every photo for which both decoded pixels and a result exist, through `geometry`.
fn photos(results: &str, geometry: Geometry, tolerance: Tolerance) {
    let mut resizer = FirResizer::new();
    let mut compared = 0;
    for entry in std::fs::read_dir(goldens().join("decoded")).unwrap() {
        let photo = entry.unwrap().path();
        let golden = goldens().join(results).join(photo.file_name().unwrap());
        if !golden.exists() {
            continue; // the same picture exists in another encoding
        }
        let (pixels, size) = read(&photo);
        let (expected, output) = read(&golden);
        let mut actual = vec![0; expected.len()];
        let src = ImageView::new(&pixels, size).unwrap();
        resizer.resize(src, &geometry.plan(size), ImageViewMut::new(&mut actual, output).unwrap()).unwrap();
        println!("{}: {}", photo.display(), Difference::between(&actual, &expected));
        tolerance.assert(&golden.display().to_string(), &actual, &expected);
        compared += 1;
    }
    assert!(compared >= 6, "only {compared} photos in {results}");
}

#[test]
fn conforms() {
    let promise = Promise { pillow: Tolerance::PILLOW_U8, opencv: Tolerance::EXACT };
    let missing = check(promise, || Box::new(FirResizer::new()));
    assert_eq!(missing, [Filter::OpenCvArea, Filter::OpenCvCubic]);
}

#[test]
fn photos_by_the_hf_recipe_equal_pillow() {
    photos("crop_hf_pil", HF, Tolerance::PILLOW_U8);
}

#[test]
fn photos_by_the_squash_recipe_equal_opencv() {
    photos("crop_squash", SQUASH, Tolerance::EXACT);
}

#[test]
fn registers_under_its_name_once() {
    let mut registry = ResizerRegistry::new("resizer", &["fir"]);
    foveate_resize_fir::register(&mut registry).unwrap();
    assert!(foveate_resize_fir::register(&mut registry).is_err());
    let mut resizer = registry.get("fir").unwrap().open().unwrap();
    let mut out = [0; 3];
    let src = ImageView::new(&[1, 2, 3], Size::square(1)).unwrap();
    let plan = Geometry::Stretch { output: Size::square(1), filter: Filter::Box }.plan(Size::square(1));
    resizer.resize(src, &plan, ImageViewMut::new(&mut out, Size::square(1)).unwrap()).unwrap();
    assert_eq!(out, [1, 2, 3]);
}
