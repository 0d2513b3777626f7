//! Compares the forward with the vectors that Hugging Face `transformers` computes from the same u8 crops.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/support/encoder.rs"]
mod support;

use std::process::ExitCode;

use foveate_dinov2::Model;
use foveate_encode::{EncoderOptions, Pooling};
use foveate_encode_candle::CandleEncoder;
use foveate_testkit::run;
use support::golden_trials;

fn main() -> ExitCode {
    run(golden_trials(open))
}

fn open(model: &Model) -> CandleEncoder {
    let options = EncoderOptions { pooling: Pooling::ClsMean, max_batch: 30, threads: 2, ..EncoderOptions::default() };
    CandleEncoder::new(model, &options).unwrap()
}
