//! Compares the edges of the format, and reduced pictures, with libjpeg-turbo's pixels. The parity tests compare whole
//! photos and the conformance files.

use std::path::{Path, PathBuf};

use foveate_core::{PixelBuf, Region, Size};
use foveate_decode::conformance::samples;
use foveate_decode::jpeg;
use foveate_decode::{DecodeError, DecodeHint, Decoder, DecoderOptions, RowDecoder, RowSink};
use foveate_decode_exact::ExactDecoder;
use foveate_testkit::pixels::{djpeg_hashes, table};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

fn fixture(path: &str) -> PathBuf {
    Path::new(CRATE).join("../../tests/fixtures").join(path)
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn decode(bytes: &[u8]) -> Result<PixelBuf, DecodeError> {
    let mut out = PixelBuf::default();
    ExactDecoder::new(DecoderOptions::default()).decode(bytes, DecodeHint::default(), &mut out).map(|_| out)
}

fn reduced(bytes: &[u8], min_side: u32, low_frequencies: bool) -> PixelBuf {
    let mut out = PixelBuf::default();
    let hint = DecodeHint { min_side: Some(min_side), low_frequencies };
    ExactDecoder::new(DecoderOptions::default()).decode(bytes, hint, &mut out).expect("a sound file");
    out
}

/// Sequential scans hold whole blocks, and libjpeg ignores what their headers say about the coefficients.
#[test]
fn a_sequential_scan_with_another_band_is_whole() {
    let mut bytes = samples::JPEG.to_vec();
    let scan = bytes.windows(2).position(|pair| pair == [0xFF, 0xDA]).expect("a scan header");
    let expected = decode(&bytes).expect("the sample");
    let band = scan + 2 + usize::from(bytes[scan + 3]) - 3;
    assert_eq!(bytes[band..band + 3], [0, 63, 0]);
    bytes[band] = 1;
    assert!(decode(&bytes).expect("the sample").as_slice() == expected.as_slice());
}

fn scaled(native: Size, eighths: u32) -> Size {
    Size::new((native.width * eighths).div_ceil(8), (native.height * eighths).div_ceil(8))
}

/// All sampling factors, at sizes around the edges of blocks and units, in every coding mode.
#[test]
fn edges_have_djpegs_pixels() {
    let folder = Path::new(CRATE).join("tests/edges");
    let files = table(&folder.join("hashes.csv"));
    for file in &files {
        let name = file("file");
        let pixels = decode(&read(&folder.join(&name)));
        let pixels = pixels.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(djpeg_hashes(&pixels).contains(&file("djpeg_sha256")), "{name}: other pixels than djpeg's");
    }
    assert_eq!(files.len(), 66);
}

/// Keeps what it asked for.
struct Part {
    wanted: Region,
    width: usize,
    samples: Vec<u8>,
}

impl RowSink for Part {
    fn begin(&mut self, size: Size) -> Option<Region> {
        self.width = size.width as usize;
        Some(self.wanted.clone())
    }

    fn rows(&mut self, samples: &[u8]) {
        self.samples.extend(columns(samples, self.width, &self.wanted));
    }
}

/// These columns of whole rows.
fn columns(samples: &[u8], width: usize, wanted: &Region) -> Vec<u8> {
    let part = wanted.columns.start as usize * 3..wanted.columns.end as usize * 3;
    samples.chunks_exact(width * 3).flat_map(|row| &row[part.clone()]).copied().collect()
}

/// Every part of a picture has the whole one's pixels, in all coding modes, with all sampling factors, at all scales.
#[test]
fn a_part_has_the_whole_pictures_pixels() {
    let folder = Path::new(CRATE).join("tests/edges");
    let mut decoder = ExactDecoder::new(DecoderOptions::default());
    let mut strip = PixelBuf::default();
    for file in table(&folder.join("hashes.csv")) {
        let name = file("file");
        let bytes = read(&folder.join(&name));
        for min_side in [None, Some(4), Some(2)] {
            let hint = DecodeHint { min_side, low_frequencies: false };
            let mut whole = PixelBuf::default();
            decoder.decode(&bytes, hint, &mut whole).expect("a sound file");
            let Size { width, height } = whole.size();
            for first in 0..width {
                for last in first..width {
                    let rows = first * height / width..height - (width - 1 - last) * height / width;
                    let wanted = Region { columns: first..last + 1, rows };
                    let mut part = Part { wanted: wanted.clone(), width: 0, samples: Vec::new() };
                    decoder.decode_rows(&bytes, hint, &mut strip, &mut part).expect("a sound file").expect("rows");
                    let line = width as usize * 3;
                    let rows = wanted.rows.start as usize * line..wanted.rows.end as usize * line;
                    let expected = columns(&whole.as_slice()[rows], width as usize, &wanted);
                    assert!(part.samples == expected, "{name}, at least {min_side:?}: {wanted:?} of {width}x{height}");
                }
            }
        }
    }
}

/// libjpeg's reduced transforms at 1/8, 1/4 and 1/2, with every kind of sampling factors. Without subsampling, those of
/// the lowest frequencies are libjpeg's too at 3/8.
#[test]
fn reduced_edges_have_djpegs_pixels() {
    let folder = Path::new(CRATE).join("tests/edges");
    let hashes = table(&folder.join("reduced.csv"));
    let mut compared = [0; 2];
    for file in table(&folder.join("hashes.csv")) {
        let name = file("file");
        let bytes = read(&folder.join(&name));
        let structure = jpeg::inspect(&bytes, 500).expect("a sound file");
        let is_plain = structure.sampling.iter().take(structure.components.into()).all(|f| *f == structure.sampling[0]);
        for low in [false, true] {
            let usable: &[u32] = if low { &[1, 2, 3, 4] } else { &[1, 2, 4] };
            for min_side in usable.iter().map(|&eighths| scaled(structure.size, eighths).min_side()) {
                // In a tiny picture, a smaller scale may have the same shorter side.
                let suffices = |eighths: &&u32| scaled(structure.size, **eighths).min_side() >= min_side;
                let eighths = *usable.iter().find(suffices).expect("one that suffices");
                let pixels = reduced(&bytes, min_side, low);
                assert_eq!(pixels.size(), scaled(structure.size, eighths), "{name} at {eighths}/8, low: {low}");
                if low && !(is_plain && [1, 3].contains(&eighths)) {
                    continue;
                }
                let hash = hashes.iter().find(|row| row("file") == name && row("eighths") == eighths.to_string());
                let hash = hash.expect("a row for each scale")("djpeg_sha256");
                assert!(djpeg_hashes(&pixels).contains(&hash), "{name} at {eighths}/8, low: {low}: not djpeg's pixels");
                compared[usize::from(low)] += 1;
            }
        }
    }
    assert!(compared[0] == 3 * 66 && compared[1] >= 20, "only {compared:?} pictures were compared");
}

/// At 3/8, libjpeg-turbo's transforms read the lowest frequencies alone, of subsampled components too.
#[test]
fn low_photos_at_three_eighths_have_libjpegs_pixels() {
    let rows = table(&Path::new(CRATE).join("tests/three_eighths.csv"));
    for row in &rows {
        let name = row("file");
        let bytes = read(&fixture("goldens/photos").join(&name));
        let native = jpeg::inspect(&bytes, 500).expect("a sound file").size;
        let pixels = reduced(&bytes, scaled(native, 3).min_side(), true);
        assert_eq!(pixels.size(), scaled(native, 3), "{name}");
        assert!(djpeg_hashes(&pixels).contains(&row("djpeg_sha256")), "{name}: other pixels than djpeg's");
    }
    assert_eq!(rows.len(), 29);
}

/// Whatever its length, a skipped part must leave the decoder at the next block: DC coefficients depend on all blocks
/// before. At 1/8, gray and unsubsampled pictures consist of them, and libjpeg's mode there decodes every coefficient
/// of chroma.
#[test]
fn skipped_coefficients_leave_the_others_alone() {
    for golden in std::fs::read_dir(fixture("goldens/photos")).expect("a folder") {
        let path = golden.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "jpg") {
            continue;
        }
        let bytes = read(&path);
        let native = jpeg::inspect(&bytes, 500).expect("a sound file").size;
        // In small pictures, the padding of the last blocks counts for too much.
        if native.min_side() < 200 {
            continue;
        }
        let whole = decode(&bytes).expect("a sound file");
        for eighths in [1, 2, 3, 4] {
            let low = reduced(&bytes, scaled(native, eighths).min_side(), true);
            let found = mean(&low);
            let expected = mean(&whole);
            assert!((found - expected).abs() < 1.5, "{}, {eighths}/8: {found}, not {expected}", path.display());
        }
    }
}

fn mean(pixels: &PixelBuf) -> f64 {
    pixels.as_slice().iter().map(|&v| f64::from(v)).sum::<f64>() / pixels.as_slice().len() as f64
}
