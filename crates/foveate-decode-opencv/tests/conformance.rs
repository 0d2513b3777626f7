//! The trait crate's conformance suite.

use foveate_decode_opencv::OpencvDecoder;

#[test]
fn conforms() {
    foveate_decode::conformance::check(&|options| Ok(Box::new(OpencvDecoder::open(*options)?)));
}
