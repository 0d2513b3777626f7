//! Compares the forward with the vectors that Hugging Face `transformers` computes from the same u8 crops.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/support/encoder.rs"]
mod support;

use std::path::Path;
use std::process::ExitCode;

use foveate_dinov2::Model;
use foveate_encode::{EncoderOptions, Pooling};
use foveate_encode_candle::CandleEncoder;
use foveate_testkit::{data, run, trials};
use support::{STRICT, fixtures};

fn main() -> ExitCode {
    run(trials![tiny_models, tiny_models_and_more_goldens, seeded_models, seeded_models_and_more_goldens,])
}

fn open(model: &Model) -> CandleEncoder {
    let options = EncoderOptions { pooling: Pooling::ClsMean, max_batch: 30, threads: 2, ..EncoderOptions::default() };
    CandleEncoder::new(model, &options).unwrap()
}

fn check_tiny(folder: &Path) {
    for name in ["tiny", "tiny-reg", "tiny-swiglu"] {
        let model = Model::from_folder(&fixtures().join("models").join(name)).unwrap();
        support::check_tiny(name, &mut open(&model), folder, STRICT);
    }
}

fn tiny_models() {
    check_tiny(&fixtures().join("goldens"));
}

fn tiny_models_and_more_goldens() {
    check_tiny(&data("goldens/hf"));
}

/// The goldens have names of their own for the models of the cards.
fn check_seeded(goldens: &Path, crops: &Path) {
    let names = [("dinov2-small", "dinov2-small"), ("dinov2-with-registers-small", "dinov2-small-with-registers")];
    for (card, name) in names {
        support::check_seeded(name, &mut open(&Model::seeded(card).unwrap()), goldens, crops, STRICT);
    }
}

fn seeded_models() {
    let folder = fixtures().join("goldens");
    check_seeded(&folder.join("seeded_embeddings.safetensors"), &folder);
}

fn seeded_models_and_more_goldens() {
    check_seeded(&data("goldens/seeded_embeddings.safetensors"), &data("goldens/hf"));
}
