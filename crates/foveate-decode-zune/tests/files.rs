//! Real files, from the repository's fixtures.

use std::path::{Path, PathBuf};

use foveate_core::PixelBuf;
use foveate_decode::{DecodeError, DecodeHint, Decoder, DecoderOptions};
use foveate_decode_zune::ZuneDecoder;

/// Largest and mean difference of a photo's samples from libjpeg-turbo's. zune-jpeg interpolates chroma with other
/// weights and rounding, and its inverse DCT and colour transform sometimes round differently by one. Measured over 137
/// photos: at most 11, mean 0.10, and 0.33 for the photo with the largest difference.
const PHOTO_MAX: u8 = 16;
const PHOTO_MEAN: f64 = 0.5;

fn fixture(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures")).join(path)
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn decode(bytes: &[u8], options: DecoderOptions) -> Result<PixelBuf, DecodeError> {
    let mut out = PixelBuf::default();
    ZuneDecoder::new(options).decode(bytes, DecodeHint::default(), &mut out).map(|_| out)
}

#[test]
fn photos_are_within_the_tolerance_of_libjpeg() {
    let mut compared = 0;
    for entry in std::fs::read_dir(fixture("goldens/decoded")).expect("the folder of decoded photos") {
        let golden = entry.expect("a folder entry").path();
        let photo = fixture("goldens/photos").join(golden.with_extension("jpg").file_name().expect("a file name"));
        if !photo.is_file() {
            continue;
        }
        let expected = image::open(&golden).expect("a PNG").into_rgb8();
        let found = decode(&read(&photo), DecoderOptions::default()).unwrap_or_else(|e| panic!("{photo:?}: {e}"));
        assert_eq!((found.size().width, found.size().height), expected.dimensions(), "{photo:?}");
        let differences = found.as_slice().iter().zip(expected.as_raw()).map(|(a, b)| a.abs_diff(*b));
        let (max, sum) = differences.fold((0, 0u64), |(max, sum), d| (d.max(max), sum + u64::from(d)));
        let mean = sum as f64 / expected.as_raw().len() as f64;
        assert!(max <= PHOTO_MAX && mean <= PHOTO_MEAN, "{photo:?}: max {max}, mean {mean:.3}");
        compared += 1;
    }
    assert!(compared >= 5, "only {compared} photos were compared");
}

/// Files that zune-jpeg decodes to wrong pixels without an error must go to another decoder.
#[test]
fn layouts_that_the_library_gets_wrong_are_unsupported() {
    let names = [
        "zune/non_interleaved_420_64x64.jpg",
        "zune/weird_sampling_2.jpeg",
        "../../../crates/foveate-decode/tests/pillow/files/jpeg-progressive-with-restart-markers-0.bin",
    ];
    for name in names {
        let verdict = decode(&read(&fixture("conformance").join(name)), DecoderOptions::default());
        assert!(matches!(verdict, Err(DecodeError::Unsupported { .. })), "{name}: {verdict:?}");
    }
}
