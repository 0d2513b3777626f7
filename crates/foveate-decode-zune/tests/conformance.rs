//! The trait crate's conformance suite.

use foveate_decode_zune::ZuneDecoder;

#[test]
fn conforms() {
    foveate_decode::conformance::check(&|options| Ok(Box::new(ZuneDecoder::new(*options))));
}
