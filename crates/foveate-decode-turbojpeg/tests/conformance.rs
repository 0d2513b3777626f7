//! The suite of the trait crate.

use foveate_decode_turbojpeg::TurboJpegDecoder;

#[test]
fn conforms() {
    foveate_decode::conformance::check(&|options| Ok(Box::new(TurboJpegDecoder::new(*options)?)));
}
