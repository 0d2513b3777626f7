//! What resizing one photo costs: 1000 × 1000 pixels of noise on a slope to 224 × 224, one thread.
//!
//! `cargo bench -p foveate-benches --bench resize [-- ROUNDS]`. Beside it, on the same machine:
//! `python3 benches/py/resize.py` for Pillow and OpenCV.

// A bench's table is what it is for.
#![allow(clippy::print_stdout)]

use foveate_benches::{median, processor_time};
use foveate_core::{ImageView, ImageViewMut, Size};
use foveate_resize::conformance::noise;
use foveate_resize::{Filter, Geometry, Resizer};
use foveate_resize_fir::FirResizer;

const SOURCE: Size = Size::square(1000);
const OUTPUT: Size = Size::square(224);

/// Images per round: some tenths of a second, so that the clock's 10 ms do not matter.
const IMAGES: u32 = 400;

fn main() {
    let rounds = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(5);
    let stretch = |filter| Geometry::Stretch { output: OUTPUT, filter };
    println!("fir, {SOURCE} to {OUTPUT}, CPU ms per image (median of {rounds} rounds of {IMAGES})");
    for (name, geometry) in [
        ("hf (bicubic to 256, crop)", Geometry::ShortestEdgeCrop { edge: 256, crop: OUTPUT, filter: Filter::Bicubic }),
        ("squash (OpenCV linear)", stretch(Filter::OpenCvLinear)),
        ("bilinear", stretch(Filter::Bilinear)),
        ("bicubic", stretch(Filter::Bicubic)),
        ("lanczos", stretch(Filter::Lanczos3)),
        ("box", stretch(Filter::Box)),
    ] {
        println!("{name:<26} {:.3}", measure(geometry, rounds));
    }
}

fn measure(geometry: Geometry, rounds: usize) -> f64 {
    let pixels = photo();
    let src = ImageView::new(&pixels, SOURCE).expect("samples fit the size");
    let (plan, mut out) = (geometry.plan(SOURCE), vec![0; OUTPUT.pixels() as usize * 3]);
    let mut resizer = FirResizer::new();
    let mut round = || {
        let before = processor_time().expect("processor time is read from /proc");
        for _ in 0..IMAGES {
            let dst = ImageViewMut::new(&mut out, OUTPUT).expect("made to fit");
            resizer.resize(src, &plan, dst).expect("a fitting plan");
        }
        let after = processor_time().expect("processor time is read from /proc");
        (after - before).as_secs_f64() * 1e3 / f64::from(IMAGES)
    };
    round(); // tables and scratch
    median(&mut (0..rounds.max(1)).map(|_| round()).collect::<Vec<_>>())
}

fn photo() -> Vec<u8> {
    let mut pixels = noise(SOURCE);
    for (index, sample) in pixels.iter_mut().enumerate() {
        *sample = *sample / 8 + (index / 14_000) as u8;
    }
    pixels
}
