//! JPEGs of the lossless process (SOF3), which libjpeg-turbo 3 reads and writes: imagecodecs' `jpeg8_encode` wrote
//! these, and Pillow 13 read them.

#![allow(clippy::unwrap_used)] // the lint exempts test functions, not their helpers

use foveate_core::{PixelBuf, PixelLimits};
use foveate_decode::{DecodeHint, Decoder, DecoderOptions};
use foveate_decode_image::GenericDecoder;

const GRAY: &[u8] = include_bytes!("lossless/gray.jpg");
const RGB: &[u8] = include_bytes!("lossless/rgb.jpg");

fn decode(file: &[u8]) -> Option<Vec<u8>> {
    let mut out = PixelBuf::new(PixelLimits { max_pixels: 1 << 20 });
    let decoded = GenericDecoder::new(DecoderOptions::default()).decode(file, DecodeHint::default(), &mut out);
    decoded.ok().map(|_| out.as_slice().to_vec())
}

#[test]
fn lossless_jpegs_have_pillows_pixels() {
    assert!(decode(GRAY).unwrap() == include_bytes!("lossless/gray.rgb"));
    assert!(decode(RGB).unwrap() == include_bytes!("lossless/rgb.rgb"));
}

/// Whatever the outcome, there is one.
#[test]
fn damaged_lossless_jpegs_are_no_panics() {
    for file in [GRAY, RGB] {
        assert_eq!(decode(&file[..file.len() / 2]), None, "truncated");
        let mut damaged = file.to_vec();
        for at in 0..file.len() {
            for bits in [0x01, 0x10, 0xFF] {
                damaged[at] ^= bits;
                let _ = decode(&damaged);
                damaged[at] ^= bits;
            }
        }
    }
}
