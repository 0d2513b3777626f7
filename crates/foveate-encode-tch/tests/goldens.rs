//! Compares checkpoints and TorchScript files with `transformers`' vectors of the same u8 crops.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::process::ExitCode;

use common::{
    HALF, SEEDED, STRICT, TINY, check_seeded, check_tiny, encode, fixtures, golden_trials, tiny, tiny_script,
};
use foveate_dinov2::Model;
use foveate_encode::{DType, EncoderOptions, Pooling};
use foveate_encode_tch::TchEncoder;
use foveate_testkit::{by_length, data, run, trials};

fn main() -> ExitCode {
    let mut trials = golden_trials(|model| TchEncoder::new(model, &options(2, 30)).unwrap());
    trials.extend(trials![
        other_forms_of_tiny_models,
        other_forms_of_tiny_models_and_more_goldens,
        a_vector_is_the_same_in_every_pooling,
    ]);
    // As with f32, the parity tests do the same.
    trials.extend(by_length(vec![], trials![seeded_models_in_bf16]));
    run(trials)
}

fn options(threads: usize, max_batch: usize) -> EncoderOptions {
    EncoderOptions { pooling: Pooling::ClsMean, max_batch, threads, ..EncoderOptions::default() }
}

/// Compares a model's other forms and precisions; `folder` has goldens, and the crops that belong to them.
fn check_forms(name: &str, folder: &Path) {
    let model = tiny(name);
    let half = |dtype| TchEncoder::new(&model, &EncoderOptions { dtype, ..options(2, 30) }).unwrap();
    let script = TchEncoder::from_torchscript(&tiny_script(name), &options(2, 30)).unwrap();
    for (form, mut encoder, tier) in
        [("torchscript", script, STRICT), ("bf16", half(DType::Bf16), HALF), ("f16", half(DType::F16), HALF)]
    {
        check_tiny(name, form, &mut encoder, folder, tier);
    }
}

fn other_forms_of_tiny_models() {
    TINY.iter().for_each(|name| check_forms(name, &fixtures().join("goldens")));
}

fn other_forms_of_tiny_models_and_more_goldens() {
    TINY.iter().for_each(|name| check_forms(name, &data("goldens/hf")));
}

fn seeded_models_in_bf16() {
    let folder = fixtures().join("goldens");
    for (card, name) in SEEDED {
        let options = EncoderOptions { dtype: DType::Bf16, ..options(2, 30) };
        let mut encoder = TchEncoder::new(&Model::seeded(card).unwrap(), &options).unwrap();
        check_seeded(name, "bf16", &mut encoder, &folder.join("seeded_embeddings.safetensors"), &folder, HALF);
    }
}

fn a_vector_is_the_same_in_every_pooling() {
    for dtype in [DType::F32, DType::Bf16] {
        let model = tiny("tiny-reg");
        let pixels = foveate_encode::conformance::noise(model.preprocess.crop, 3);
        let [class, mean, both] = [Pooling::Cls, Pooling::Mean, Pooling::ClsMean].map(|pooling| {
            let options = EncoderOptions { pooling, dtype, ..options(1, 1) };
            encode(&mut TchEncoder::new(&model, &options).unwrap(), &pixels)
        });
        assert_eq!([class.row(0), mean.row(0)].concat(), both.row(0));
    }
}
