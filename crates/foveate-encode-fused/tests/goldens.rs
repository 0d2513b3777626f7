//! Compares the forward with the vectors that Hugging Face `transformers` computes from the same u8 crops.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/support/encoder.rs"]
mod support;

use std::process::ExitCode;

use foveate_dinov2::Model;
use foveate_encode::{EncoderOptions, Pooling};
use foveate_encode_fused::FusedEncoder;
use foveate_testkit::{run, trials};
use support::{encode, golden_trials, tiny};

fn main() -> ExitCode {
    let mut trials = golden_trials(open);
    trials.extend(trials![a_class_vector_is_the_same_with_and_without_the_mean]);
    run(trials)
}

fn open(model: &Model) -> FusedEncoder {
    let options = EncoderOptions { pooling: Pooling::ClsMean, max_batch: 30, threads: 2, ..EncoderOptions::default() };
    FusedEncoder::new(model, &options).unwrap()
}

fn a_class_vector_is_the_same_with_and_without_the_mean() {
    let model = tiny("tiny");
    let pixels = foveate_encode::conformance::noise(model.preprocess.crop, 3);
    let class = EncoderOptions { pooling: Pooling::Cls, ..EncoderOptions::default() };
    let class = encode(&mut FusedEncoder::new(&model, &class).unwrap(), &pixels);
    let both = encode(&mut open(&model), &pixels);
    assert_eq!(class.row(0), &both.row(0)[..class.dim()]);
}
