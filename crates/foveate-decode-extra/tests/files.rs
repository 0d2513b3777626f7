//! Files of the kinds that Pillow alone does not write, with Pillow's pixels: `files/make.py` made both.

#![allow(clippy::unwrap_used)] // the lint exempts test functions, not their helpers

use foveate_core::{PixelBuf, PixelLimits};
use foveate_decode::conformance::samples;
use foveate_decode::{DecodeError, DecodeHint, Decoded, Decoder};
use foveate_decode_extra::ExtraDecoder;

fn decode(bytes: &[u8], out: &mut PixelBuf) -> Result<Decoded, DecodeError> {
    ExtraDecoder.decode(bytes, DecodeHint::default(), out)
}

/// The file has these pixels, but for differences of `tolerance`.
fn shows(file: &[u8], expected: &[u8], tolerance: u8) {
    let mut out = PixelBuf::default();
    decode(file, &mut out).unwrap();
    assert_eq!(out.as_slice().len(), expected.len());
    let worst = out.as_slice().iter().zip(expected).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
    assert!(worst <= tolerance, "a sample is off by {worst}");
}

#[test]
#[cfg(feature = "avif")]
fn avif_of_ten_bits_and_in_tiles_has_pillows_pixels() {
    shows(include_bytes!("files/ten-bits.avif"), include_bytes!("files/ten-bits.avif.rgb"), 0);
    shows(include_bytes!("files/grid.avif"), include_bytes!("files/grid.avif.rgb"), 0);
}

#[test]
#[cfg(feature = "jxl")]
fn jpeg_xl_has_libjxls_pixels() {
    // The two libraries round differently.
    shows(include_bytes!("files/lossy.jxl"), include_bytes!("files/lossy.jxl.rgb"), 1);
    shows(include_bytes!("files/gray.jxl"), include_bytes!("files/gray.jxl.rgb"), 0);
}

/// A picture as phones write it: upright, in the pixels of libheif. Releases from before 2023 repeat samples of chroma
/// where later ones interpolate. Without the library the error says how to install it.
#[test]
#[cfg(feature = "heic")]
fn heic_is_read_or_names_what_is_missing() {
    let file = include_bytes!("files/turned.heic");
    match decode(file, &mut PixelBuf::default()) {
        Ok(_) => shows(file, include_bytes!("files/turned.heic.rgb"), 16),
        Err(error) => {
            let text = foveate_core::error_chain(&error);
            assert!(text.contains("libheif was not found") && text.contains("apt install libheif1"), "{text}");
        }
    }
    let mut out = PixelBuf::new(PixelLimits { max_pixels: 41 * 37 - 1 });
    assert!(decode(file, &mut out).is_err() && out.size().is_empty());
    assert!(decode(&file[..file.len() / 2], &mut out).is_err() && out.size().is_empty());
}

/// A file that is cut off is refused: gray where pixels are missing would be another picture.
#[test]
fn files_that_end_early_are_refused() {
    let files: &[&[u8]] = &[
        #[cfg(feature = "avif")]
        include_bytes!("files/ten-bits.avif"),
        #[cfg(feature = "avif")]
        include_bytes!("files/grid.avif"),
        #[cfg(feature = "jxl")]
        include_bytes!("files/lossy.jxl"),
        #[cfg(feature = "jpeg2000")]
        samples::JPEG_2000,
    ];
    for file in files {
        for length in [file.len() / 2, file.len() * 3 / 4, file.len() - 20] {
            let mut out = PixelBuf::default();
            let outcome = decode(&file[..length], &mut out);
            assert!(outcome.is_err() && out.size().is_empty(), "{length} of {} bytes: {outcome:?}", file.len());
        }
    }
}

/// Headers with more pixels than permitted are refused by their size alone.
#[test]
fn a_size_beyond_the_limit_is_refused_at_once() {
    let side = 60_000_u32.to_be_bytes();
    let mut files = Vec::new();
    for (sample, mark) in [(samples::AVIF, b"ispe"), (samples::JPEG_2000, b"ihdr")] {
        let mut file = sample.to_vec();
        let at = file.windows(4).position(|kind| kind == mark).unwrap() + 4;
        let at = if mark == b"ispe" { at + 4 } else { at };
        file[at..at + 4].copy_from_slice(&side);
        file[at + 4..at + 8].copy_from_slice(&side);
        if let Some(size) = file.windows(2).position(|marker| marker == b"\xFF\x51") {
            file[size + 6..size + 10].copy_from_slice(&side);
            file[size + 10..size + 14].copy_from_slice(&side);
        }
        files.push(file);
    }
    for file in files.iter().filter(|_| cfg!(all(feature = "avif", feature = "jpeg2000"))) {
        let outcome = decode(file, &mut PixelBuf::new(PixelLimits::DEFAULT));
        match outcome {
            Err(DecodeError::Limit(error)) => assert!(error.to_string().contains("60000x60000"), "{error}"),
            other => panic!("{other:?}"),
        }
    }
}
