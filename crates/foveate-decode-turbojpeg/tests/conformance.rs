//! The trait crate's conformance suite.

use foveate_decode_turbojpeg::TurboJpegDecoder;

#[test]
fn conforms() {
    foveate_decode::conformance::check(&|options| Ok(Box::new(TurboJpegDecoder::new(*options)?)));
}
