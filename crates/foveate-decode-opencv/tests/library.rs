//! The linked library.

use foveate_decode::{Decoder, DecoderOptions};
use foveate_decode_opencv::OpencvDecoder;

/// Debian's OpenCV and the Python wheels are built on libjpeg-turbo. With any other OpenCV, this test should fail.
#[test]
fn this_opencv_is_exact() {
    let decoder = OpencvDecoder::open(DecoderOptions::default()).expect("OpenCV");
    assert!(decoder.capability().exact_jpeg && decoder.capability().scaled);
}
