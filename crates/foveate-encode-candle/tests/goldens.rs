//! The forward against the vectors that Hugging Face `transformers` computes from the same u8 crops.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/support/encoder.rs"]
mod support;

use foveate_dinov2::Model;
use foveate_encode::{EncoderOptions, Pooling};
use foveate_encode_candle::CandleEncoder;
use support::{STRICT, fixtures};

fn open(model: &Model) -> CandleEncoder {
    let options = EncoderOptions { pooling: Pooling::ClsMean, max_batch: 30, threads: 2, ..EncoderOptions::default() };
    CandleEncoder::new(model, &options).unwrap()
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
