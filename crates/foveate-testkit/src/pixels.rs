//! Hashes of pixels, and the tables that list them.

use std::path::Path;

use foveate_core::PixelBuf;
use sha2::{Digest, Sha256};

/// SHA-256 of the parts in turn, in hexadecimal digits.
pub fn sha256(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes of these pixels as `djpeg -pnm` would write them: PPM, and also PGM if every pixel is gray.
pub fn djpeg_hashes(pixels: &PixelBuf) -> Vec<String> {
    let size = pixels.size();
    let header = format!("\n{} {}\n255\n", size.width, size.height);
    let mut hashes = vec![sha256(&[b"P6", header.as_bytes(), pixels.as_slice()])];
    let (rgb, _) = pixels.as_slice().as_chunks::<3>();
    if rgb.iter().all(|[r, g, b]| r == g && g == b) {
        let gray: Vec<u8> = rgb.iter().map(|[r, ..]| *r).collect();
        hashes.push(sha256(&[b"P5", header.as_bytes(), &gray]));
    }
    hashes
}

/// The rows of a CSV file, as functions from a column's name to its value.
pub fn table(path: &Path) -> Vec<impl Fn(&str) -> String + use<>> {
    let mut reader = csv::Reader::from_path(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let header = reader.headers().unwrap().clone();
    let lines = reader.records().map(move |record| {
        let header = header.clone();
        let record = record.unwrap();
        move |name: &str| {
            let column = header.iter().position(|column| column == name);
            record[column.unwrap_or_else(|| panic!("no column {name}"))].to_owned()
        }
    });
    lines.collect()
}
