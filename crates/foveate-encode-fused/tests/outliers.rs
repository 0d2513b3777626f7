//! Models with outliers as larger DINOv2 checkpoints have them, which destroy 8-bit products with one scale per tensor.
//!
//! Outlier channels: factors of 2048 move from weights into LayerNorms and attention's values, and the network computes
//! the same function. Outlier tokens: some positions are 300 times as large as others. Real weights of DINOv2-B and -L
//! may have outliers of other kinds; `foveate verify` measures them.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

use std::borrow::Cow;

use foveate_encode::{DType, EncoderOptions, Pooling, conformance};
use foveate_encode_fused::FusedEncoder;
use foveate_model::{Model, ModelError, Weights};
use foveate_testkit::encoders::{distance, encode, tiny};

const NAMES: [&str; 3] = ["tiny", "tiny-reg", "tiny-swiglu"];

struct Changed {
    inner: Box<dyn Weights>,
    change: fn(&str, &[usize], &mut [f32]),
}

impl Weights for Changed {
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Cow<'_, [f32]>, ModelError> {
        let mut tensor = self.inner.tensor(name, shape)?;
        (self.change)(name, shape, tensor.to_mut());
        Ok(tensor)
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.inner.shape(name)
    }

    fn hash(&self) -> &str {
        self.inner.hash()
    }

    fn is_seeded(&self) -> bool {
        self.inner.is_seeded()
    }
}

fn outlier_channels(name: &str, shape: &[usize], tensor: &mut [f32]) {
    const CHANNELS: [usize; 2] = [5, 40];
    const FACTOR: f32 = 2048.0;
    let inputs = shape[shape.len() - 1];
    let reads_them = ["query.weight", "key.weight", "value.weight", "dense.weight", "fc1.weight", "weights_in.weight"];
    if reads_them.iter().any(|layer| name.ends_with(layer)) {
        tensor.chunks_exact_mut(inputs).for_each(|row| CHANNELS.iter().for_each(|&channel| row[channel] /= FACTOR));
    }
    if name.ends_with("value.weight") {
        CHANNELS.iter().for_each(|channel| tensor[channel * inputs..][..inputs].iter_mut().for_each(|w| *w *= FACTOR));
    }
    if ["norm1", "norm2", "value.bias"].iter().any(|part| name.contains(part)) {
        CHANNELS.iter().for_each(|&channel| tensor[channel] *= FACTOR);
    }
}

fn outlier_tokens(name: &str, shape: &[usize], tensor: &mut [f32]) {
    if name.ends_with("position_embeddings") {
        let width = shape[2];
        for token in [7, 20, 21] {
            tensor[token * width..][..width].iter_mut().for_each(|value| *value *= 300.0);
        }
    }
}

/// Returns the largest 1 - cosine between the vectors of a precision and those of f32.
fn drift(model: &Model, dtype: DType) -> f64 {
    let pixels: Vec<u8> = (0..4).flat_map(|seed| conformance::noise(model.preprocess.crop, seed)).collect();
    let [exact, rounded] = [DType::F32, dtype].map(|dtype| {
        let options = EncoderOptions { dtype, max_batch: 4, pooling: Pooling::ClsMean, ..EncoderOptions::default() };
        encode(&mut FusedEncoder::new(model, &options).unwrap(), &pixels)
    });
    let exact_row = |row| exact.row(row).iter().map(|&value| f64::from(value)).collect::<Vec<_>>();
    (0..4).map(|row| distance(rounded.row(row), &exact_row(row)).0).fold(0.0, f64::max)
}

#[test]
fn outliers_cost_no_precision() {
    for name in NAMES {
        for (what, change) in
            [("channels", outlier_channels as fn(&str, &[usize], &mut [f32])), ("tokens", outlier_tokens)]
        {
            for (dtype, most) in [(DType::Bf16, 1e-4), (DType::I8, 1e-3)] {
                // Where i8 is slower than f32, it is refused.
                if cfg!(target_arch = "aarch64") && dtype == DType::I8 {
                    continue;
                }
                let plain = drift(&tiny(name), dtype);
                let mut model = tiny(name);
                model.weights = Box::new(Changed { inner: model.weights, change });
                let found = drift(&model, dtype);
                println!("{name}, outlier {what}, {}: 1 - cosine {plain:.1e} plain, {found:.1e}", dtype.name());
                assert!(found <= most, "{name}, outlier {what}, {}: {found:e}; {plain:e} plain", dtype.name());
            }
        }
    }
}
