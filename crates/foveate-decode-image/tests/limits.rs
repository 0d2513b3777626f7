//! Decompression bombs: headers with more pixels than permitted are refused by their size alone.

#![allow(clippy::unwrap_used)] // the lint exempts test functions, not their helpers

use foveate_core::{LimitError, PixelBuf, PixelLimits, Size};
use foveate_decode::conformance::samples;
use foveate_decode::{DecodeError, DecodeHint, Decoder, DecoderOptions};
use foveate_decode_image::GenericDecoder;

/// The sample with each patch's bytes written at its offset.
fn patched(sample: &[u8], patches: &[(usize, &[u8])]) -> Vec<u8> {
    let mut file = sample.to_vec();
    for (at, bytes) in patches {
        file[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    file
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { 0xEDB8_8320 ^ (crc >> 1) } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}

fn png(side: u32) -> Vec<u8> {
    let side = side.to_be_bytes();
    let file = patched(samples::PNG, &[(16, &side), (20, &side)]);
    patched(&file, &[(29, &crc32(&file[12..29]).to_be_bytes())])
}

fn gif(side: u16) -> Vec<u8> {
    patched(samples::GIF, &[(6, &side.to_le_bytes()), (8, &side.to_le_bytes())])
}

fn bmp(side: u32) -> Vec<u8> {
    patched(samples::BMP, &[(18, &side.to_le_bytes()), (22, &side.to_le_bytes())])
}

/// Sets the tags ImageWidth, ImageLength and RowsPerStrip, of any type: one huge strip.
fn tiff(side: u32) -> Vec<u8> {
    let mut file = samples::TIFF.to_vec();
    assert_eq!(&file[..4], b"II*\0");
    let directory = u32::from_le_bytes(file[4..8].try_into().unwrap()) as usize;
    let entries = usize::from(u16::from_le_bytes(file[directory..directory + 2].try_into().unwrap()));
    for at in (0..entries).map(|i| directory + 2 + 12 * i) {
        if matches!(u16::from_le_bytes([file[at], file[at + 1]]), 256 | 257 | 278) {
            file[at + 2..at + 4].copy_from_slice(&4u16.to_le_bytes());
            file[at + 8..at + 12].copy_from_slice(&side.to_le_bytes());
        }
    }
    file
}

/// Lossless WebP holds width − 1 and height − 1 as 14 bits each, after the signature byte 0x2F.
fn webp(side: u32) -> Vec<u8> {
    assert_eq!((&samples::WEBP[12..16], samples::WEBP[20]), (b"VP8L".as_slice(), 0x2F));
    let flags = u32::from_le_bytes(samples::WEBP[21..25].try_into().unwrap()) & !0x0FFF_FFFF;
    patched(samples::WEBP, &[(21, &((side - 1) | (side - 1) << 14 | flags).to_le_bytes())])
}

fn decode(bytes: &[u8], max_pixels: u64) -> Result<Size, DecodeError> {
    let mut out = PixelBuf::new(PixelLimits { max_pixels });
    let outcome = GenericDecoder::new(DecoderOptions::default()).decode(bytes, DecodeHint::default(), &mut out);
    outcome.map(|decoded| decoded.native)
}

#[test]
fn a_size_beyond_the_limit_is_refused_at_once_in_every_format() {
    for (side, file) in [
        (60_000, png(60_000)),
        (60_000, gif(60_000)),
        (60_000, bmp(60_000)),
        (60_000, tiff(60_000)),
        (16_383, webp(16_383)),
    ] {
        let outcome = decode(&file, PixelLimits::DEFAULT.max_pixels);
        match outcome {
            Err(DecodeError::Limit(LimitError::TooManyPixels { size, .. })) => assert_eq!(size, Size::square(side)),
            other => panic!("{side}: {other:?}"),
        }
    }
}

/// Within the pixel limit, but with almost no data: an error, without a real image's time or memory.
#[test]
fn a_large_size_without_data_is_an_error() {
    for file in [png(9_000), bmp(9_000), tiff(9_000), webp(9_000)] {
        let outcome = decode(&file, PixelLimits::DEFAULT.max_pixels);
        assert!(outcome.is_err());
    }
}

#[test]
fn memory_while_decoding_is_limited_too() {
    // 16-bit RGBA takes eight bytes per pixel, of which the budget permits four. The header alone is enough: bit depth
    // 16, colour type 6.
    let file = png(8_000);
    let file = patched(&file, &[(24, &[16, 6])]);
    let file = patched(&file, &[(29, &crc32(&file[12..29]).to_be_bytes())]);
    let outcome = decode(&file, PixelLimits::DEFAULT.max_pixels);
    assert!(matches!(outcome, Err(DecodeError::TooCostly(_))), "{outcome:?}");
}
