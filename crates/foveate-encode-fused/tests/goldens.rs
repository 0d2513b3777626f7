//! The forward against the vectors that Hugging Face `transformers` computes from the same u8 crops.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/support/encoder.rs"]
mod support;

use foveate_dinov2::Model;
use foveate_encode::{EncoderOptions, Pooling};
use foveate_encode_fused::FusedEncoder;
use support::{STRICT, encode, fixtures};

fn open(model: &Model) -> FusedEncoder {
    let options = EncoderOptions { pooling: Pooling::ClsMean, max_batch: 30, threads: 2, ..EncoderOptions::default() };
    FusedEncoder::new(model, &options).unwrap()
}

fn check_tiny(name: &str) {
    let model = Model::from_folder(&fixtures().join("models").join(name)).unwrap();
    support::check_tiny(name, &mut open(&model), STRICT);
}

#[test]
fn tiny_plain() {
    check_tiny("tiny");
}

#[test]
fn tiny_with_registers() {
    check_tiny("tiny-reg");
}

#[test]
fn tiny_swiglu() {
    check_tiny("tiny-swiglu");
}

/// `name` is the goldens' name for the model that `card` describes.
fn check_seeded(card: &str, name: &str) {
    support::check_seeded(name, &mut open(&Model::seeded(card).unwrap()), STRICT);
}

#[test]
fn seeded_small() {
    check_seeded("dinov2-small", "dinov2-small");
}

#[test]
fn seeded_small_with_registers() {
    check_seeded("dinov2-with-registers-small", "dinov2-small-with-registers");
}

#[test]
fn a_class_vector_is_the_same_with_and_without_the_mean() {
    let model = Model::from_folder(&fixtures().join("models/tiny")).unwrap();
    let pixels = foveate_encode::conformance::noise(model.preprocess.crop, 3);
    let class = EncoderOptions { pooling: Pooling::Cls, ..EncoderOptions::default() };
    let class = encode(&mut FusedEncoder::new(&model, &class).unwrap(), &pixels);
    let both = encode(&mut open(&model), &pixels);
    assert_eq!(class.row(0), &both.row(0)[..class.dim()]);
}
