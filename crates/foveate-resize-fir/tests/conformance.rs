//! The trait crate's suite. The parity tests compare photos.

use foveate_resize::Filter;
use foveate_resize::conformance::{Promise, Tolerance, check};
use foveate_resize_fir::FirResizer;

#[test]
fn conforms() {
    let promise = Promise { pillow: Tolerance::EXACT, approximate: Tolerance::PILLOW_U8, opencv: Tolerance::EXACT };
    let missing = check(promise, || Box::new(FirResizer::new()));
    assert_eq!(missing, [Filter::OpenCvArea, Filter::OpenCvCubic]);
}
