//! Requirements on every encoder, as tests that a backend calls from its own.
//!
//! They do not judge numerics: a backend's own tests compare those with a model's goldens.

use foveate_core::{CHANNELS, PixelBatch, Size, VectorBuf};

use crate::{DType, EncodeError, Encoder, EncoderOptions, EncoderSpec, Pooling};

/// Images in the largest tested batch.
const IMAGES: usize = 5;

/// Runs every check on encoders from `make`, for all poolings and one, two and three threads. `hidden` is the width
/// of the model's tokens.
///
/// # Panics
/// If an encoder does not conform, with the reason, or if `make` panics.
pub fn check(hidden: usize, make: impl Fn(&EncoderOptions) -> Box<dyn Encoder>) {
    check_with(&EncoderOptions::default(), hidden, make);
}

/// Runs every check on another device, in another precision or with other settings: those of `base`.
///
/// # Panics
/// As [`check`].
pub fn check_with(base: &EncoderOptions, hidden: usize, make: impl Fn(&EncoderOptions) -> Box<dyn Encoder>) {
    let mut first: Option<Vec<f32>> = None;
    for threads in [1, 2, 3] {
        let options = EncoderOptions { max_batch: IMAGES, threads, ..base.clone() };
        for pooling in [Pooling::Cls, Pooling::Mean, Pooling::ClsMean] {
            spec_follows_options(hidden, &EncoderOptions { pooling, ..options.clone() }, &make);
        }
        let mut encoder = make(&options);
        let vectors = a_row_depends_on_its_image_alone(encoder.as_mut());
        distinguishes_images(encoder.as_mut(), &vectors);
        reuses_the_output(encoder.as_mut(), &vectors);
        refuses_what_does_not_fit(encoder.as_mut());
        let expected = first.get_or_insert_with(|| vectors.as_slice().to_vec());
        same(encoder.spec(), vectors.as_slice(), expected, "another number of threads");
    }
    poolings_agree(base, hidden, &make);
}

/// Returns an image of `size` with noise that depends on `seed`.
pub fn noise(size: Size, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9) | 1;
    let samples = (0..size.pixels() as usize * CHANNELS).map(|_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 11) as u8
    });
    samples.collect()
}

fn images(size: Size, seeds: impl IntoIterator<Item = u32>) -> Vec<u8> {
    seeds.into_iter().flat_map(|seed| noise(size, seed)).collect()
}

fn encode(encoder: &mut dyn Encoder, pixels: &[u8]) -> VectorBuf {
    let batch = PixelBatch::new(pixels, encoder.spec().input).expect("whole images");
    let mut out = VectorBuf::new();
    encoder.encode(batch, &mut out).expect("a batch within the spec is encoded");
    assert_eq!((out.rows(), out.dim()), (batch.len(), encoder.spec().dim), "one vector per image");
    assert!(out.as_slice().iter().all(|value| value.is_finite()), "vectors are finite");
    out
}

/// Compares bit for bit if the encoder claims batch invariance, else approximately.
fn same(spec: &EncoderSpec, a: &[f32], b: &[f32], what: &str) {
    if spec.batch_invariant {
        let equal = a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(a.len() == b.len() && equal, "{what} changes a vector's bits, though the spec says it does not");
        return;
    }
    let tolerance = if spec.dtype == DType::F32 { 1e-4 } else { 5e-2 };
    let scale = b.iter().fold(0.0f32, |max, value| max.max(value.abs()));
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= tolerance * scale, "{what} changes a vector: {a} instead of {b}");
    }
}

fn spec_follows_options(hidden: usize, options: &EncoderOptions, make: &impl Fn(&EncoderOptions) -> Box<dyn Encoder>) {
    let mut encoder = make(options);
    let spec = encoder.spec().clone();
    assert_eq!(spec.pooling, options.pooling);
    assert_eq!(spec.dtype, options.dtype);
    assert_eq!(spec.dim, options.pooling.dim(hidden), "the vector's width follows from the pooling");
    assert_eq!(spec.max_batch, options.max_batch);
    assert!(!spec.input.is_empty() && !spec.device.is_empty());
    assert!(spec.std.iter().all(|&std| std > 0.0), "a standard deviation is positive");
    encode(encoder.as_mut(), &noise(spec.input, 1));
    assert_eq!(*encoder.spec(), spec, "the spec is constant");
}

/// An image has the same vector at every position in batches of every length and order.
fn a_row_depends_on_its_image_alone(encoder: &mut dyn Encoder) -> VectorBuf {
    let spec = encoder.spec().clone();
    let all = images(spec.input, 0..IMAGES as u32);
    let image = all.len() / IMAGES;
    let together = encode(encoder, &all);
    for len in 1..IMAGES {
        for first in [0, IMAGES - len] {
            let part = encode(encoder, &all[first * image..(first + len) * image]);
            let expected = &together.as_slice()[first * spec.dim..(first + len) * spec.dim];
            same(&spec, part.as_slice(), expected, "another batch");
        }
    }
    let reversed = encode(encoder, &images(spec.input, (0..IMAGES as u32).rev()));
    for i in 0..IMAGES {
        same(&spec, reversed.row(IMAGES - 1 - i), together.row(i), "another order");
    }
    let repeated = encode(encoder, &all);
    same(&spec, repeated.as_slice(), together.as_slice(), "a second call");
    together
}

fn distinguishes_images(encoder: &mut dyn Encoder, vectors: &VectorBuf) {
    for i in 1..vectors.rows() {
        assert_ne!(vectors.row(0), vectors.row(i), "other images have other vectors");
    }
    let black = vec![0; noise(encoder.spec().input, 0).len()];
    let black = encode(encoder, &black);
    assert_ne!(vectors.row(0), black.row(0), "black is not noise");
}

/// Previous content of the output block does not matter.
fn reuses_the_output(encoder: &mut dyn Encoder, vectors: &VectorBuf) {
    let spec = encoder.spec().clone();
    let mut out = VectorBuf::new();
    out.reset(2 * IMAGES, spec.dim + 3).fill(f32::NAN);
    let pixels = noise(spec.input, 0);
    let batch = PixelBatch::new(&pixels, spec.input).expect("one image");
    encoder.encode(batch, &mut out).expect("a batch within the spec is encoded");
    assert_eq!((out.rows(), out.dim()), (1, spec.dim));
    same(&spec, out.as_slice(), vectors.row(0), "a used output block");
}

fn refuses_what_does_not_fit(encoder: &mut dyn Encoder) {
    let spec = encoder.spec().clone();
    let Size { width, height } = spec.input;
    let cases = [
        (Size::new(width + 1, height), 1),
        (Size::new(width, height + 1), 1),
        (Size::new(1, 1), 1),
        (spec.input, spec.max_batch + 1),
    ];
    for (size, len) in cases {
        let pixels = images(size, 0..len as u32);
        let batch = PixelBatch::new(&pixels, size).expect("whole images");
        match encoder.encode(batch, &mut VectorBuf::new()) {
            Err(EncodeError::Batch(_)) => {}
            other => panic!("{len} images of {size} must be refused as a batch, not {other:?}"),
        }
    }
    encode(encoder, &noise(spec.input, 0));
}

/// `cls+mean` is the two other poolings' vectors side by side.
fn poolings_agree(base: &EncoderOptions, hidden: usize, make: &impl Fn(&EncoderOptions) -> Box<dyn Encoder>) {
    let [class, mean, both] = [Pooling::Cls, Pooling::Mean, Pooling::ClsMean].map(|pooling| {
        let options = EncoderOptions { pooling, max_batch: 1, ..base.clone() };
        let mut encoder = make(&options);
        let pixels = noise(encoder.spec().input, 7);
        (encode(encoder.as_mut(), &pixels), encoder.spec().clone())
    });
    // Approximately: a pooling need not compute tokens it does not read, and a library may then choose other kernels.
    let spec = EncoderSpec { batch_invariant: false, ..both.1 };
    same(&spec, &both.0.as_slice()[..hidden], class.0.as_slice(), "pooling both");
    same(&spec, &both.0.as_slice()[hidden..], mean.0.as_slice(), "pooling both");
}
