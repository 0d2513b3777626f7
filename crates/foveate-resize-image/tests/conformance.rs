//! The trait's own suite.
use foveate_resize::Filter;
use foveate_resize::conformance::{Promise, Tolerance, check};
use foveate_resize_image::ImageResizer;

const ANY: Tolerance = Tolerance { name: "any", max: 255, within_one: 0.0 };
#[test]
fn conforms() {
    let promise = Promise { pillow: ANY, opencv: ANY };
    let missing = check(promise, || Box::new(ImageResizer));
    assert_eq!(missing, [Filter::Box, Filter::OpenCvLinear, Filter::OpenCvArea, Filter::OpenCvCubic]);
}
