//! The trait crate's conformance suite.

use foveate_decode_exact::ExactDecoder;

#[test]
fn conforms() {
    foveate_decode::conformance::check(&|options| Ok(Box::new(ExactDecoder::new(*options))));
}
