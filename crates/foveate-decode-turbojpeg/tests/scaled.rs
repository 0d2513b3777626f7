//! Reduced decoding gives the library's pixels of the whole file at that scale, with or without dropped scans.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use foveate_core::{PixelBuf, Size};
use foveate_decode::{DecodeHint, Decoder, DecoderOptions, jpeg};
use foveate_decode_turbojpeg::TurboJpegDecoder;
use foveate_testkit::{data, run, trials};
use turbojpeg::{Compressor, Decompressor, Image, PixelFormat, ScalingFactor, Subsamp};

fn main() -> ExitCode {
    run(trials![
        scans_that_do_not_show_are_left_out_and_no_others,
        no_progressive_file_shows_that_scans_are_left_out,
        no_shared_file_shows_that_scans_are_left_out,
        damage_does_not_show_either,
        generated_pictures_do_not_show_it,
        the_precaution_against_smoothing_is_needed,
    ])
}

const EIGHTHS: [u32; 4] = [1, 2, 4, 8];

fn scaled(native: Size, eighths: u32) -> Size {
    Size::new((native.width * eighths).div_ceil(8), (native.height * eighths).div_ceil(8))
}

/// The library's own pixels of the whole file; `None` if it gives none, or none in RGB.
fn unskipped(bytes: &[u8], native: Size, eighths: u32) -> Option<Vec<u8>> {
    let size = scaled(native, eighths);
    let (width, height) = (size.width as usize, size.height as usize);
    let mut pixels = vec![0; width * height * 3];
    let mut library = Decompressor::new().expect("a handle");
    library.set_scaling_factor(ScalingFactor::new(eighths as usize, 8)).expect("a supported factor");
    let image = Image { pixels: &mut pixels[..], width, height, pitch: width * 3, format: PixelFormat::RGB };
    let complaint = library.decompress(bytes, image).err().map(|error| error.to_string());
    // After a warning that does not concern the header, there are pixels.
    let has_pixels = match complaint {
        None => true,
        Some(text) => {
            let is_warning = text.contains("Corrupt JPEG data") || text.contains("Inconsistent progression");
            is_warning && library.read_header(bytes).is_ok()
        }
    };
    has_pixels.then_some(pixels)
}

/// Result of the comparison at all scales.
enum Compared {
    /// The library gives no pixels for the file.
    Not,
    /// Equal, with this many scans dropped at 1/8.
    Equal { dropped: u32 },
}

/// Compares our pixels with those of the full file at every scale.
///
/// The hints are the shorter sides at each scale. In tiny pictures a smaller scale may suffice as well, and is then
/// chosen.
fn compare(name: &str, bytes: &[u8]) -> Compared {
    let Ok(structure) = jpeg::inspect(bytes, 500) else { return Compared::Not };
    let mut decoder = TurboJpegDecoder::new(DecoderOptions::default()).expect("the library is linked in");
    let mut out = PixelBuf::default();
    for min_side in EIGHTHS.map(|eighths| scaled(structure.size, eighths).min_side()) {
        let suffices = |eighths: &u32| scaled(structure.size, *eighths).min_side() >= min_side;
        let eighths = EIGHTHS.into_iter().find(suffices).expect("the native size suffices");
        let hint = DecodeHint { min_side: Some(min_side), ..DecodeHint::default() };
        if decoder.decode(bytes, hint, &mut out).is_err() {
            return Compared::Not;
        }
        assert_eq!(out.size(), scaled(structure.size, eighths), "{name} at {eighths}/8");
        let Some(expected) = unskipped(bytes, structure.size, eighths) else { return Compared::Not };
        assert!(out.as_slice() == expected, "{name} at {eighths}/8: other pixels than with all scans");
    }
    let mut fewer = Vec::new();
    let is_less = jpeg::without_unused_scans(bytes, &structure, &mut fewer).expect("a sound structure");
    let scans = if is_less { jpeg::inspect(&fewer, 500).expect("a sound structure").scans } else { structure.scans };
    Compared::Equal { dropped: structure.scans - scans }
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// A folder's progressive JPEGs.
fn progressive(folder: &Path) -> impl Iterator<Item = (String, Vec<u8>)> {
    files(folder).into_iter().filter_map(|path| {
        let bytes = std::fs::read(&path).expect("a file");
        let structure = jpeg::inspect(&bytes, 500).ok()?;
        let is_small = structure.size.pixels() < 20_000_000;
        (is_small && structure.process == jpeg::Process::Progressive).then(|| (path.display().to_string(), bytes))
    })
}

fn dropped(name: &str) -> u32 {
    let bytes = std::fs::read(here("tests/progressive").join(name)).expect("a file");
    match compare(name, &bytes) {
        Compared::Equal { dropped } => dropped,
        Compared::Not => panic!("{name}: no pixels"),
    }
}

fn scans_that_do_not_show_are_left_out_and_no_others() {
    let found = [
        // Chroma of 4:2:0 keeps its scans; without subsampling all AC scans go.
        ("usual_2x2.jpg", 4),
        ("usual_1x1.jpg", 8),
        ("bands_2x2.jpg", 2),
        ("bands_1x1.jpg", 4),
        ("bands_and_bits_2x2.jpg", 3),
        ("bits_2x2.jpg", 4),
        ("bits_1x1.jpg", 12),
        ("components_2x2.jpg", 1),
        ("components_1x1.jpg", 3),
        ("gray.jpg", 4),
        ("rgb.jpg", 12),
        ("restarts.jpg", 4),
        ("shared_table.jpg", 4),
        ("wide_table.jpg", 4),
        ("unfinished_high_2x2.jpg", 1),
        // Cases where libjpeg smooths, or was observed to.
        ("unfinished_ac_1x1.jpg", 0),
        ("unfinished_bit_2x2.jpg", 0),
        ("unfinished_low_2x2.jpg", 0),
        ("unfinished_chroma_2x2.jpg", 0),
    ];
    for (name, expected) in found {
        assert_eq!(dropped(name), expected, "{name}: scans left out");
    }
}

fn no_progressive_file_shows_that_scans_are_left_out() {
    shows_nothing(&here("tests/progressive"), 25);
    shows_nothing(&here("../foveate-decode-exact/tests/edges"), 15);
}

fn no_shared_file_shows_that_scans_are_left_out() {
    shows_nothing(&data("photos"), 36);
    shows_nothing(&data("conformance"), 20);
}

/// Checks every progressive file of the folder, and every prefix of the small ones, which libjpeg smooths. At least
/// `least` of them must have scans to drop.
fn shows_nothing(folder: &Path, least: u32) {
    let mut with_fewer = 0;
    for (name, bytes) in progressive(folder) {
        with_fewer += u32::from(matches!(compare(&name, &bytes), Compared::Equal { dropped: 1.. }));
        if bytes.len() < 10_000 {
            beginnings(&bytes).for_each(|part| _ = compare(&format!("{name}, {} bytes", part.len()), &part));
        }
    }
    assert!(with_fewer >= least, "{}: only {with_fewer} files had scans left out", folder.display());
}

/// The file cut after each of its scans.
fn beginnings(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let markers = bytes.windows(2).enumerate().filter(|(_, pair)| *pair == [0xFF, 0xDA]);
    markers.skip(1).map(|(at, _)| [&bytes[..at], &[0xFF, 0xD9]].concat())
}

/// Inverted bits in every part of a file.
fn damage_does_not_show_either() {
    let mut compared = 0;
    for name in ["usual_2x2.jpg", "bits_1x1.jpg", "restarts.jpg", "shared_table.jpg"] {
        let mut bytes = std::fs::read(here("tests/progressive").join(name)).expect("a file");
        for at in 2..bytes.len() {
            let bit = 1 << (at % 8);
            bytes[at] ^= bit;
            compared += u32::from(matches!(compare(&format!("{name}, byte {at}"), &bytes), Compared::Equal { .. }));
            bytes[at] ^= bit;
        }
    }
    assert!(compared > 3000, "only {compared} damaged files have pixels");
}

/// Sizes around the edges of blocks and units × sampling factors × qualities.
fn generated_pictures_do_not_show_it() {
    let mut noise = 1_u32;
    let subsamplings = [
        Subsamp::None,
        Subsamp::Sub2x1,
        Subsamp::Sub2x2,
        Subsamp::Gray,
        Subsamp::Sub1x2,
        Subsamp::Sub4x1,
        Subsamp::Sub1x4,
    ];
    let mut compressor = Compressor::new().expect("a handle");
    compressor.set_progressive(true).expect("a supported setting");
    for (width, height) in [(1, 1), (7, 9), (16, 16), (17, 33), (64, 5), (75, 70)] {
        let random = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 24) as u8
        });
        let pixels: Vec<u8> = random.take(width * height * 3).collect();
        for (subsampling, quality) in subsamplings.into_iter().flat_map(|s| [3, 50, 97].map(|quality| (s, quality))) {
            compressor.set_subsamp(subsampling).expect("a supported setting");
            compressor.set_quality(quality).expect("a supported setting");
            let image = Image { pixels: &pixels[..], width, height, pitch: width * 3, format: PixelFormat::RGB };
            let bytes = compressor.compress_to_vec(image).expect("a compressed picture");
            let name = format!("{width}x{height} {subsampling:?} at quality {quality}");
            match compare(&name, &bytes) {
                Compared::Equal { dropped } => assert!(dropped >= 4, "{name}: {dropped} scans left out"),
                Compared::Not => panic!("{name}: no pixels"),
            }
        }
    }
}

/// Without the zero in the quantization tables, libjpeg would smooth.
fn the_precaution_against_smoothing_is_needed() {
    let bytes = std::fs::read(here("tests/progressive/usual_2x2.jpg")).expect("a file");
    let structure = jpeg::inspect(&bytes, 500).expect("a sound file");
    let mut fewer = Vec::new();
    assert!(jpeg::without_unused_scans(&bytes, &structure, &mut fewer).expect("a sound file"));
    let expected = unskipped(&bytes, structure.size, 1).expect("pixels");
    assert!(unskipped(&fewer, structure.size, 1).expect("pixels") == expected);

    // All tables precede the first scan, which is kept.
    let header = bytes.windows(2).position(|pair| pair == [0xFF, 0xDA]).expect("a scan");
    fewer[..header].copy_from_slice(&bytes[..header]);
    assert!(unskipped(&fewer, structure.size, 1).expect("pixels") != expected, "libjpeg has not smoothed");
}
