//! Decodes all shared conformance files in turn, also damaged ones, and compares with djpeg's pixels. The parity tests
//! compare every file alone.

use std::path::Path;
use std::process::ExitCode;

use foveate_core::PixelBuf;
use foveate_decode::{DecodeError, DecodeHint, Decoder, DecoderOptions, ImageFormat};
use foveate_decode_turbojpeg::TurboJpegDecoder;
use foveate_testkit::pixels::{djpeg_hashes, table};
use foveate_testkit::{data, run, trials};

fn main() -> ExitCode {
    run(trials![shared_files_get_the_verdicts_and_the_pixels_of_the_manifest,])
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn turbojpeg() -> TurboJpegDecoder {
    TurboJpegDecoder::new(DecoderOptions::default()).expect("the library is linked in")
}

fn decode(decoder: &mut dyn Decoder, bytes: &[u8]) -> Result<PixelBuf, DecodeError> {
    let mut out = PixelBuf::default();
    decoder.decode(bytes, DecodeHint::default(), &mut out).map(|_| out)
}

/// The manifest's verdict for every file, with djpeg's pixels for every file that djpeg decodes.
fn shared_files_get_the_verdicts_and_the_pixels_of_the_manifest() {
    let folder = data("conformance");
    let options = DecoderOptions { allow_truncated: true, ..DecoderOptions::default() };
    // One pair of decoders for all files, to show that no file spoils the next one.
    let mut strict = turbojpeg();
    let mut lenient = TurboJpegDecoder::new(options).expect("the library is linked in");
    let mut compared = 0;
    let mut unsupported = 0;
    let mut warned = Vec::new();
    for file in table(&folder.join("MANIFEST.csv")) {
        let name = file("file");
        let expect = file("expect");
        let hash = file("djpeg_ppm_sha256");
        let bytes = read(&folder.join(&name));
        let outcome = decode(&mut strict, &bytes);
        match (&outcome, expect.as_str()) {
            // The formats of other decoders, and those that no decoder reads.
            (Err(DecodeError::Unsupported { format, .. }), _) if *format != ImageFormat::Jpeg => {}
            (Err(DecodeError::UnsupportedFormat { .. }), "decode-or-unsupported") => {}
            (Err(DecodeError::Unsupported { .. }), "decode-or-unsupported") => unsupported += 1,
            // Headers that libjpeg warns about.
            (Err(DecodeError::Unsupported { .. }), "decode") => warned.push(name.clone()),
            (Ok(_), "decode" | "decode-or-unsupported")
            | (Err(_), "reject" | "reject-fast")
            | (_, "partial-or-error") => {}
            _ => panic!("{name}: {expect} expected, got {outcome:?}"),
        }
        // The hashes are libjpeg-turbo 2.1.5's, which smooths unfinished progressive pictures differently from 3.1.0.
        let smoothed = matches!(outcome, Err(DecodeError::Truncated { .. })) && file("process") == "progressive";
        if let (Ok(pixels), false, false) = (decode(&mut lenient, &bytes), hash.is_empty(), smoothed) {
            assert!(djpeg_hashes(&pixels).contains(&hash), "{name}: other pixels than djpeg's");
            compared += 1;
        }
    }
    assert!(compared >= 165, "only {compared} files were compared");
    // Nine lossless files and one of 12 bits.
    assert_eq!(unsupported, 10, "files left to others");
    let icc = warned.iter().filter(|name| name.starts_with("jpeg-decoder/icc_")).count();
    assert_eq!((icc, warned.len()), (4, 4), "{warned:?}");
}
