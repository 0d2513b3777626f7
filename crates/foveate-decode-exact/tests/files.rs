//! Decodes every file for which a hash of libjpeg-turbo's or Pillow's pixels exists.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use foveate_core::PixelBuf;
use foveate_decode::{DecodeError, DecodeHint, Decoder, DecoderOptions};
use foveate_decode_exact::ExactDecoder;
use foveate_testkit::{data, run, trials};
use sha2::{Digest, Sha256};

fn main() -> ExitCode {
    run(trials![
        golden_photos_have_pillows_pixels,
        committed_conformance_files_have_pillows_pixels,
        edges_have_djpegs_pixels,
        shared_files_have_djpegs_pixels,
    ])
}

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

fn fixture(path: &str) -> PathBuf {
    Path::new(CRATE).join("../../tests/fixtures").join(path)
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn decode(bytes: &[u8], options: DecoderOptions) -> Result<PixelBuf, DecodeError> {
    let mut out = PixelBuf::default();
    ExactDecoder::new(options).decode(bytes, DecodeHint::default(), &mut out).map(|_| out)
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

fn golden_photos_have_pillows_pixels() {
    let goldens: serde_json::Value = serde_json::from_slice(&read(&fixture("goldens/decoded.json"))).expect("JSON");
    let goldens = goldens.as_array().expect("a list");
    for golden in goldens {
        let name = golden["file"].as_str().expect("a name");
        let pixels = decode(&read(&fixture("goldens/photos").join(name)), DecoderOptions::default());
        let pixels = pixels.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(sha256(&[pixels.as_slice()]), golden["sha256_rgb"], "{name}");
    }
    assert_eq!(goldens.len(), 30);
}

fn committed_conformance_files_have_pillows_pixels() {
    let mut compared = 0;
    for file in table(&fixture("conformance/MANIFEST.csv")) {
        let (name, hash) = (file("file"), file("rgb_sha256"));
        if !["JPEG", "MPO"].contains(&file("format").to_uppercase().as_str()) || hash.is_empty() {
            continue;
        }
        let pixels = decode(&read(&fixture("conformance").join(&name)), DecoderOptions::default());
        assert_eq!(sha256(&[pixels.unwrap_or_else(|error| panic!("{name}: {error}")).as_slice()]), hash, "{name}");
        compared += 1;
    }
    assert!(compared >= 30, "only {compared} files were compared");
}

/// All sampling factors, at sizes around the edges of blocks and units, in every coding mode.
fn edges_have_djpegs_pixels() {
    let folder = Path::new(CRATE).join("tests/edges");
    let files = table(&folder.join("hashes.csv"));
    for file in &files {
        let name = file("file");
        let pixels = decode(&read(&folder.join(&name)), DecoderOptions::default());
        let pixels = pixels.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(djpeg_hashes(&pixels).contains(&file("djpeg_sha256")), "{name}: other pixels than djpeg's");
    }
    assert_eq!(files.len(), 66);
}

/// The large set outside the repository. Damaged files are left out because their pixels are unspecified.
fn shared_files_have_djpegs_pixels() {
    for (set, least) in [("conformance", 130), ("photos", 100), ("labelled", 400)] {
        let folder = data(set);
        let mut compared = 0;
        for file in table(&folder.join("MANIFEST.csv")) {
            let (name, hash) = (file("file"), file("djpeg_ppm_sha256"));
            let optional = file("expect") == "decode-or-unsupported";
            if hash.is_empty() || !(optional || file("expect") == "decode") {
                continue;
            }
            match decode(&read(&folder.join(&name)), DecoderOptions::default()) {
                Ok(pixels) => assert!(djpeg_hashes(&pixels).contains(&hash), "{name}: other pixels than djpeg's"),
                Err(DecodeError::Unsupported { .. }) if optional => continue,
                Err(error) => panic!("{name}: {error}"),
            }
            compared += 1;
        }
        assert!(compared >= least, "only {compared} files of {set} were compared");
    }
}
