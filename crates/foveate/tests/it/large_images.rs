//! Images of 100 megapixels take turns, whatever the number of workers.

use std::fs;
use std::io::Write;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

use crate::common::{CONFORMANCE, embed, run};

const SIDE: u16 = 10_000;

#[test]
fn sixteen_workers_decode_few_large_images_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("images");
    fs::create_dir(&images).unwrap();
    let png = png();
    let jpeg = jpeg();
    let count = foveate_testkit::by_length(4, 16);
    for number in 0..count {
        fs::write(images.join(format!("{number}.png")), &png).unwrap();
        fs::write(images.join(format!("{number}.jpg")), &jpeg).unwrap();
    }
    let mut command = embed(&folder.path().join("x.npy"));
    command.arg(&images).args(["--workers=16", "--threads=1", "--recent-memory=off", "--json"]);
    let summary = run(&mut command).expect(0).json();
    assert_eq!(summary["session"]["vectors"].as_u64(), Some(2 * count as u64));
    // One PNG has 300 MB of pixels; JPEGs are decoded in strips. Four PNGs at once would have 1,200 MB.
    let peak = summary["peak_resident_bytes"].as_u64().unwrap();
    println!("{} MB at most", peak / 1_000_000);
    assert!(peak < 800_000_000, "{peak} bytes");
}

/// A PNG of one colour, RGB8.
fn png() -> Vec<u8> {
    let mut pixels = ZlibEncoder::new(Vec::new(), Compression::fast());
    let row = vec![0; 1 + 3 * usize::from(SIDE)];
    for _ in 0..SIDE {
        pixels.write_all(&row).unwrap();
    }
    let side = u32::from(SIDE).to_be_bytes();
    let header = [&side[..], &side, &[8, 2, 0, 0, 0]].concat();
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    for (name, data) in [(b"IHDR", header), (b"IDAT", pixels.finish().unwrap()), (b"IEND", Vec::new())] {
        let mut crc = Crc::new();
        crc.update(name);
        crc.update(&data);
        png.extend([&(data.len() as u32).to_be_bytes()[..], name, &data, &crc.sum().to_be_bytes()].concat());
    }
    png
}

/// A progressive JPEG whose scans end early, so that most of it is gray.
fn jpeg() -> Vec<u8> {
    let mut jpeg = fs::read(format!("{CONFORMANCE}/bomb/claims_60000x60000_progressive.jpg")).unwrap();
    let frame = jpeg.windows(2).position(|marker| marker == [0xFF, 0xC2]).unwrap();
    jpeg[frame + 5..frame + 9].copy_from_slice(&[SIDE.to_be_bytes(), SIDE.to_be_bytes()].concat());
    jpeg
}
