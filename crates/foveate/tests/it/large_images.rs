//! Images of 100 megapixels take turns, whatever the number of workers.

use std::fs;

use image::RgbImage;

use crate::common::{CONFORMANCE, embed, run};

const SIDE: u16 = 10_000;

#[test]
fn sixteen_workers_decode_few_large_images_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("images");
    fs::create_dir(&images).unwrap();
    let black = images.join("0.png");
    RgbImage::new(SIDE.into(), SIDE.into()).save(&black).unwrap();
    let jpeg = jpeg();
    let count: usize = foveate_testkit::by_length(3, 15);
    for number in 1..=count {
        fs::copy(&black, images.join(format!("{number}.png"))).unwrap();
        fs::write(images.join(format!("{number}.jpg")), &jpeg).unwrap();
    }
    let mut command = embed(&folder.path().join("x.npy"));
    command.arg(&images).args(["--workers=16", "--threads=1", "--recent-memory=off", "--json"]);
    let summary = run(&mut command).expect(0).json();
    assert_eq!(summary["session"]["vectors"].as_u64(), Some(2 * count as u64 + 1));
    // One PNG has 300 MB of pixels; JPEGs are decoded in strips. Four PNGs at once would have 1,200 MB.
    let peak = summary["peak_resident_bytes"].as_u64().unwrap();
    println!("{} MB at most", peak / 1_000_000);
    assert!(peak < 800_000_000, "{peak} bytes");
}

/// A progressive JPEG whose scans end early, so that most of it is gray.
fn jpeg() -> Vec<u8> {
    let mut jpeg = fs::read(format!("{CONFORMANCE}/bomb/claims_60000x60000_progressive.jpg")).unwrap();
    let frame = jpeg.windows(2).position(|marker| marker == [0xFF, 0xC2]).unwrap();
    jpeg[frame + 5..frame + 9].copy_from_slice(&[SIDE.to_be_bytes(), SIDE.to_be_bytes()].concat());
    jpeg
}
