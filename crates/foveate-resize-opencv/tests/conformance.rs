//! The trait's own suite.
#![allow(clippy::unwrap_used)]

use foveate_resize::Filter;
use foveate_resize::conformance::{Promise, Tolerance, check};
use foveate_resize_opencv::OpencvResizer;

const ANY: Tolerance = Tolerance { name: "any", max: 255, within_one: 0.0 };
#[test]
fn conforms() {
    let promise = Promise { pillow: ANY, opencv: Tolerance::EXACT };
    let missing = check(promise, || Box::new(OpencvResizer::open().unwrap()));
    assert_eq!(missing, [Filter::Box, Filter::Lanczos3]);
}
