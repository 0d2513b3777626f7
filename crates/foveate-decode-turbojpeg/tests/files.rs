//! Decodes every file with a known hash of libjpeg-turbo's or Pillow's pixels, and checks every verdict in the
//! manifests.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use foveate_core::PixelBuf;
use foveate_decode::{DecodeError, DecodeHint, Decoder, DecoderOptions, ImageFormat};
use foveate_decode_turbojpeg::TurboJpegDecoder;
use foveate_testkit::{data, run, trials};
use sha2::{Digest, Sha256};

fn main() -> ExitCode {
    run(trials![
        committed_files_have_pillows_pixels,
        shared_files_get_the_verdicts_and_the_pixels_of_the_manifest,
        shared_photos_have_djpegs_pixels,
    ])
}

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

fn fixture(path: &str) -> PathBuf {
    Path::new(CRATE).join("../../tests/fixtures").join(path)
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

fn sha256(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes of the output of `djpeg -pnm`: PPM, and also PGM if every pixel is gray.
fn djpeg_hashes(pixels: &PixelBuf) -> Vec<String> {
    let size = pixels.size();
    let header = |magic: &str| format!("{magic}\n{} {}\n255\n", size.width, size.height);
    let (rgb, _) = pixels.as_slice().as_chunks::<3>();
    let gray: Vec<u8> = rgb.iter().map(|[r, ..]| *r).collect();
    let is_gray = rgb.iter().all(|[r, g, b]| r == g && g == b);
    let mut hashes = vec![sha256(&[header("P6").as_bytes(), pixels.as_slice()])];
    hashes.extend(is_gray.then(|| sha256(&[header("P5").as_bytes(), &gray])));
    hashes
}

/// A table's rows below its header, as functions from a column's name to its value.
fn table(path: &Path) -> Vec<impl Fn(&str) -> String + use<>> {
    let mut reader = csv::Reader::from_path(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let header = reader.headers().expect("a header").clone();
    let lines = reader.records().map(move |record| {
        let (header, record) = (header.clone(), record.expect("a line"));
        move |name: &str| {
            let column = header.iter().position(|column| column == name);
            record[column.unwrap_or_else(|| panic!("no column {name}"))].to_owned()
        }
    });
    lines.collect()
}

fn committed_files_have_pillows_pixels() {
    let mut compared = 0;
    for file in table(&fixture("conformance/MANIFEST.csv")) {
        let (name, hash) = (file("file"), file("rgb_sha256"));
        if !["JPEG", "MPO"].contains(&file("format").to_uppercase().as_str()) || hash.is_empty() {
            continue;
        }
        let pixels = decode(&mut turbojpeg(), &read(&fixture("conformance").join(&name)));
        assert_eq!(sha256(&[pixels.unwrap_or_else(|error| panic!("{name}: {error}")).as_slice()]), hash, "{name}");
        compared += 1;
    }
    assert!(compared >= 30, "only {compared} files were compared");
}

/// The manifest's verdict for every file, with djpeg's pixels for every file that djpeg decodes.
fn shared_files_get_the_verdicts_and_the_pixels_of_the_manifest() {
    let folder = data("conformance");
    let options = DecoderOptions { allow_truncated: true, ..DecoderOptions::default() };
    // One pair of decoders for all files, to show that no file spoils the next one.
    let (mut strict, mut lenient) = (turbojpeg(), TurboJpegDecoder::new(options).expect("the library is linked in"));
    let (mut compared, mut unsupported, mut warned) = (0, 0, Vec::new());
    for file in table(&folder.join("MANIFEST.csv")) {
        let (name, expect, hash) = (file("file"), file("expect"), file("djpeg_ppm_sha256"));
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

fn shared_photos_have_djpegs_pixels() {
    for (set, least) in [("photos", 100), ("labelled", 400)] {
        let folder = data(set);
        let mut decoder = turbojpeg();
        let mut compared = 0;
        for file in table(&folder.join("MANIFEST.csv")) {
            let (name, hash) = (file("file"), file("djpeg_ppm_sha256"));
            if hash.is_empty() {
                continue;
            }
            let pixels = decode(&mut decoder, &read(&folder.join(&name)));
            let pixels = pixels.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(djpeg_hashes(&pixels).contains(&hash), "{name}: other pixels than djpeg's");
            compared += 1;
        }
        assert!(compared >= least, "only {compared} files of {set} were compared");
    }
}
