//! Compares checkpoints and TorchScript files with `transformers`' vectors of the same u8 crops.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::process::ExitCode;

use common::{Goldens, HALF, STRICT, TINY, check, encode, fixtures, keys, tiny, tiny_script};
use foveate_dinov2::Model;
use foveate_encode::{DType, EncoderOptions, Pooling};
use foveate_encode_tch::TchEncoder;
use foveate_testkit::{data, run, trials};

fn main() -> ExitCode {
    run(trials![
        tiny_models,
        tiny_models_and_more_goldens,
        seeded_small,
        seeded_small_with_registers,
        a_vector_is_the_same_in_every_pooling,
    ])
}

fn options(threads: usize, max_batch: usize) -> EncoderOptions {
    EncoderOptions { pooling: Pooling::ClsMean, max_batch, threads, ..EncoderOptions::default() }
}

/// `folder` has goldens, and the crops that belong to them.
fn check_tiny(name: &str, folder: &Path) {
    let model = tiny(name);
    let half = |dtype| EncoderOptions { dtype, ..options(2, 30) };
    let mut encoders = [
        ("f32", TchEncoder::new(&model, &options(2, 30)).unwrap(), STRICT),
        ("torchscript", TchEncoder::from_torchscript(&tiny_script(name), &options(2, 30)).unwrap(), STRICT),
        ("bf16", TchEncoder::new(&model, &half(DType::Bf16)).unwrap(), HALF),
        ("f16", TchEncoder::new(&model, &half(DType::F16)).unwrap(), HALF),
    ];
    let goldens = Goldens::read(&folder.join(format!("embeddings_{name}.safetensors")));
    for recipe in ["hf_pil", "squash"] {
        let class = keys(&format!("{recipe}.cls"), [".f32", ".f64"]);
        let mean = keys(&format!("{recipe}.patch_mean"), [".f32", ".f64"]);
        assert!(class.iter().chain(&mean).filter(|&key| goldens.tensors.contains_key(key)).count() >= 2);
        for (form, encoder, tier) in &mut encoders {
            let crops = folder.join(format!("crop_{recipe}"));
            check(&format!("{name} {form}"), encoder, &goldens, [&class, &mean], &crops, *tier);
        }
    }
}

fn tiny_models() {
    TINY.iter().for_each(|name| check_tiny(name, &fixtures().join("goldens")));
}

fn tiny_models_and_more_goldens() {
    TINY.iter().for_each(|name| check_tiny(name, &data("goldens/hf")));
}

/// `name` is the goldens' name for the model that `card` describes.
fn check_seeded(card: &str, name: &str) {
    let model = Model::seeded(card).unwrap();
    let goldens = Goldens::read(&fixtures().join("goldens/seeded_embeddings.safetensors"));
    for (dtype, tier) in [(DType::F32, STRICT), (DType::Bf16, HALF)] {
        let mut encoder = TchEncoder::new(&model, &EncoderOptions { dtype, ..options(2, 30) }).unwrap();
        for recipe in ["hf_pil", "squash"] {
            let class = keys(&format!("{name}.{recipe}"), [".cls", ".cls64"]);
            let mean = [format!("{name}.{recipe}.patch_mean")];
            assert!(goldens.tensors.contains_key(&class[0]) && goldens.tensors.contains_key(&mean[0]));
            let crops = fixtures().join(format!("goldens/crop_{recipe}"));
            check(&format!("{name} {}", dtype.name()), &mut encoder, &goldens, [&class, &mean], &crops, tier);
        }
    }
}

fn seeded_small() {
    check_seeded("dinov2-small", "dinov2-small");
}

fn seeded_small_with_registers() {
    check_seeded("dinov2-with-registers-small", "dinov2-small-with-registers");
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
