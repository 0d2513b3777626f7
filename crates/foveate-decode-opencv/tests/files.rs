//! Decodes every file with a known hash of libjpeg-turbo's or Pillow's pixels.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use foveate_core::{PixelBuf, Size};
use foveate_decode::{DecodeError, DecodeHint, Decoder, DecoderOptions};
use foveate_decode_opencv::OpencvDecoder;
use foveate_testkit::{data, run, trials};
use sha2::{Digest, Sha256};

fn main() -> ExitCode {
    run(trials![
        this_opencv_is_exact,
        golden_photos_have_pillows_pixels,
        reduced_photos_have_pillows_pixels,
        committed_conformance_files_have_pillows_pixels,
        shared_files_have_djpegs_pixels,
        what_was_in_the_buffer_never_shows,
        what_was_in_the_buffer_never_shows_in_shared_files,
    ])
}

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

fn fixture(path: &str) -> PathBuf {
    Path::new(CRATE).join("../../tests/fixtures").join(path)
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn open(options: DecoderOptions) -> OpencvDecoder {
    OpencvDecoder::open(options).expect("OpenCV")
}

fn decode(bytes: &[u8]) -> Result<PixelBuf, DecodeError> {
    let mut out = PixelBuf::default();
    open(DecoderOptions::default()).decode(bytes, DecodeHint::default(), &mut out).map(|_| out)
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

/// Debian's OpenCV and the Python wheels are built on libjpeg-turbo. With any other OpenCV, these tests should fail.
fn this_opencv_is_exact() {
    assert!(open(DecoderOptions::default()).capability().exact_jpeg);
}

fn golden_photos_have_pillows_pixels() {
    let goldens: serde_json::Value = serde_json::from_slice(&read(&fixture("goldens/decoded.json"))).expect("JSON");
    let mut compared = 0;
    for golden in goldens.as_array().expect("a list") {
        let name = golden["file"].as_str().expect("a name");
        match decode(&read(&fixture("goldens/photos").join(name))) {
            Ok(pixels) => assert_eq!(sha256(&[pixels.as_slice()]), golden["sha256_rgb"], "{name}"),
            Err(DecodeError::Unsupported { .. }) if name.contains("cmyk") => continue,
            Err(error) => panic!("{name}: {error}"),
        }
        compared += 1;
    }
    assert_eq!(compared, 29);
}

/// Pillow reduces by libjpeg too (`Image.draft`), so the same scale gives the same pixels.
fn reduced_photos_have_pillows_pixels() {
    let rows = table(&Path::new(CRATE).join("tests/reduced.csv"));
    for row in &rows {
        let number = |column| row(column).parse::<u32>().expect("a number");
        let (name, size) = (row("file"), Size::new(number("width"), number("height")));
        let hint = DecodeHint { min_side: Some(size.min_side()), ..DecodeHint::default() };
        let mut out = PixelBuf::default();
        let bytes = read(&fixture("goldens/photos").join(&name));
        open(DecoderOptions::default()).decode(&bytes, hint, &mut out).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(out.size(), size, "{name} / {}", row("denominator"));
        assert_eq!(sha256(&[out.as_slice()]), row("sha256_rgb"), "{name} / {}", row("denominator"));
    }
    assert!(rows.len() > 70, "only {} photos", rows.len());
}

fn committed_conformance_files_have_pillows_pixels() {
    let mut compared = [0; 2];
    for file in table(&fixture("conformance/MANIFEST.csv")) {
        let (name, hash) = (file("file"), file("rgb_sha256"));
        let format = file("format").to_uppercase();
        let kind = usize::from(format == "PNG");
        if !["JPEG", "MPO", "PNG"].contains(&format.as_str()) || hash.is_empty() {
            continue;
        }
        match decode(&read(&fixture("conformance").join(&name))) {
            Ok(pixels) => assert_eq!(sha256(&[pixels.as_slice()]), hash, "{name}"),
            Err(DecodeError::Unsupported { .. }) if may_refuse(&file) => continue,
            Err(error) => panic!("{name}: {error}"),
        }
        compared[kind] += 1;
    }
    assert!(compared >= [30, 14], "only {compared:?} JPEG and PNG files were compared");
}

/// CMYK and 16-bit gray.
fn may_refuse(file: &impl Fn(&str) -> String) -> bool {
    file("mode") == "CMYK" || file("mode").starts_with("I;16")
}

/// The large set outside the repository. Damaged files are left out because their pixels are unspecified.
fn shared_files_have_djpegs_pixels() {
    for (set, least) in [("conformance", 120), ("photos", 100), ("labelled", 400)] {
        let folder = data(set);
        let mut compared = 0;
        for file in table(&folder.join("MANIFEST.csv")) {
            let (name, hash) = (file("file"), file("djpeg_ppm_sha256"));
            let optional = file("expect") == "decode-or-unsupported";
            if hash.is_empty() || !(optional || file("expect") == "decode") {
                continue;
            }
            match decode(&read(&folder.join(&name))) {
                Ok(pixels) => assert!(djpeg_hashes(&pixels).contains(&hash), "{name}: other pixels than djpeg's"),
                Err(DecodeError::Unsupported { .. }) if optional => continue,
                Err(error) => panic!("{name}: {error}"),
            }
            compared += 1;
        }
        assert!(compared >= least, "only {compared} files of {set} were compared");
    }
}

fn what_was_in_the_buffer_never_shows() {
    never_shows_what_was_in_the_buffer(&fixture("conformance"));
}

fn what_was_in_the_buffer_never_shows_in_shared_files() {
    never_shows_what_was_in_the_buffer(&data("conformance"));
}

/// Parts of a damaged file that OpenCV leaves unwritten would show an earlier picture.
fn never_shows_what_was_in_the_buffer(folder: &Path) {
    let lenient = DecoderOptions { allow_truncated: true, ..DecoderOptions::default() };
    for file in table(&folder.join("MANIFEST.csv")) {
        let bytes = read(&folder.join(file("file")));
        let results = [0x00, 0xFF].map(|before| {
            let mut out = PixelBuf::default();
            out.reset(Size::square(1500)).expect("room").fill(before);
            let outcome = open(lenient).decode(&bytes, DecodeHint::default(), &mut out);
            (outcome.map_err(|error| error.to_string()), sha256(&[out.as_slice()]))
        });
        assert_eq!(results[0], results[1], "{}", file("file"));
    }
}
