//! The trait crate's conformance suite.

use foveate_decode_image::GenericDecoder;

#[test]
fn conforms() {
    foveate_decode::conformance::check(&|options| Ok(Box::new(GenericDecoder::new(*options))));
}
