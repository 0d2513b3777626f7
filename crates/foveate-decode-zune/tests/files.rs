//! Real files, from the repository's fixtures.

use std::path::{Path, PathBuf};

use foveate_core::PixelBuf;
use foveate_decode::{DecodeError, DecodeHint, Decoder, DecoderOptions};
use foveate_decode_zune::ZuneDecoder;

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
