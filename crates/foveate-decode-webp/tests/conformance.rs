//! The suite of all decoders.

use foveate_decode::conformance;
use foveate_decode_webp::WebPDecoder;

#[test]
fn conforms() {
    conformance::check(&|_| Ok(Box::new(WebPDecoder)));
}
