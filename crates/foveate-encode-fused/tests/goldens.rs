//! Compares the forward with the vectors that Hugging Face `transformers` computes from the same u8 crops.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/support/encoder.rs"]
mod support;

use std::path::Path;
use std::process::ExitCode;

use foveate_dinov2::Model;
use foveate_encode::{EncoderOptions, Pooling};
use foveate_encode_fused::FusedEncoder;
use foveate_testkit::{data, run, trials};
use support::{STRICT, encode, fixtures};

fn main() -> ExitCode {
    run(trials![
        tiny_models,
        tiny_models_and_more_goldens,
        seeded_models,
        seeded_models_and_more_goldens,
        a_class_vector_is_the_same_with_and_without_the_mean,
    ])
}

fn open(model: &Model) -> FusedEncoder {
    let options = EncoderOptions { pooling: Pooling::ClsMean, max_batch: 30, threads: 2, ..EncoderOptions::default() };
    FusedEncoder::new(model, &options).unwrap()
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

fn a_class_vector_is_the_same_with_and_without_the_mean() {
    let model = Model::from_folder(&fixtures().join("models/tiny")).unwrap();
    let pixels = foveate_encode::conformance::noise(model.preprocess.crop, 3);
    let class = EncoderOptions { pooling: Pooling::Cls, ..EncoderOptions::default() };
    let class = encode(&mut FusedEncoder::new(&model, &class).unwrap(), &pixels);
    let both = encode(&mut open(&model), &pixels);
    assert_eq!(class.row(0), &both.row(0)[..class.dim()]);
}
