//! Both forwards against the vectors that Hugging Face `transformers` computes from the same u8 crops.

// Tests may unwrap, and what was compared is worth seeing.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "../../../tests/support/encoder.rs"]
mod support;

use candle_core::Device;
use foveate_dinov2::Model;
use foveate_encode::{EncoderOptions, Pooling};
use foveate_encode_fused::{FusedEncoder, TensorEncoder};
use support::{Goldens, STRICT, check, crops, distance, encode, fixtures, keys, shared};

fn options(threads: usize, max_batch: usize) -> EncoderOptions {
    EncoderOptions { pooling: Pooling::ClsMean, max_batch, threads, ..EncoderOptions::default() }
}

fn check_tiny(name: &str) {
    let model = Model::from_folder(&fixtures().join("models").join(name)).unwrap();
    let mut encoder = FusedEncoder::new(&model, &options(2, 30)).unwrap();
    let mut tensors = TensorEncoder::new(&model, &options(1, 30), Device::Cpu).unwrap();
    let sources = [Some(fixtures().join("goldens")), shared("goldens/hf")];
    for folder in sources.iter().flatten() {
        let goldens = Goldens::read(&folder.join(format!("embeddings_{name}.safetensors")));
        for recipe in ["hf_pil", "squash"] {
            let class = keys(&format!("{recipe}.cls"), [".f32", ".f64"]);
            let mean = keys(&format!("{recipe}.patch_mean"), [".f32", ".f64"]);
            assert!(class.iter().chain(&mean).filter(|&key| goldens.tensors.contains_key(key)).count() >= 2);
            let crops = folder.join(format!("crop_{recipe}"));
            check(name, &mut encoder, &goldens, [&class, &mean], &crops, STRICT);
            check(&format!("{name} (tensors)"), &mut tensors, &goldens, [&class, &mean], &crops, STRICT);
        }
    }
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
    let model = Model::seeded(card).unwrap();
    let mut encoder = FusedEncoder::new(&model, &options(2, 30)).unwrap();
    let crop_folder = shared("goldens/hf").unwrap_or_else(|| fixtures().join("goldens"));
    let goldens = match shared("goldens/seeded_embeddings.safetensors") {
        Some(path) => Goldens::read(&path),
        None => Goldens::read(&fixtures().join("goldens/seeded_embeddings.safetensors")),
    };
    for recipe in ["hf_pil", "squash"] {
        let class = keys(&format!("{name}.{recipe}"), [".cls", ".cls64"]);
        let mean = [format!("{name}.{recipe}.patch_mean")];
        assert!(goldens.tensors.contains_key(&class[0]) && goldens.tensors.contains_key(&mean[0]));
        check(name, &mut encoder, &goldens, [&class, &mean], &crop_folder.join(format!("crop_{recipe}")), STRICT);
    }
}

#[test]
fn seeded_small() {
    check_seeded("dinov2-small", "dinov2-small");
}

#[test]
fn seeded_small_with_registers() {
    check_seeded("dinov2-with-registers-small", "dinov2-small-with-registers");
}

/// A crop of the golden photos by the ViT-Tiny's own recipe is not stored, so this makes none: it compares the two forwards
/// on the crops at hand, which its goldens (of other crops) cannot judge.
#[test]
fn vit_tiny_forwards_agree() {
    let Some(folder) = shared("weights/vit-tiny-patch16-224") else { return };
    let model = Model::from_folder(&folder).unwrap();
    let mut encoder = FusedEncoder::new(&model, &options(1, 30)).unwrap();
    let mut tensors = TensorEncoder::new(&model, &options(1, 30), Device::Cpu).unwrap();
    let goldens = Goldens::read(&fixtures().join("goldens/embeddings_tiny.safetensors"));
    let (pixels, _) = crops(&fixtures().join("goldens/crop_hf_pil"), &goldens.names, 224);
    let (ours, theirs) = (encode(&mut encoder, &pixels), encode(&mut tensors, &pixels));
    for i in 0..ours.rows() {
        let want: Vec<f64> = theirs.row(i).iter().map(|&v| v.into()).collect();
        STRICT.check("vit-tiny", distance(ours.row(i), &want));
    }
}

#[test]
fn a_class_vector_is_the_same_with_and_without_the_mean() {
    let model = Model::from_folder(&fixtures().join("models/tiny")).unwrap();
    let pixels = foveate_encode::conformance::noise(model.preprocess.crop, 3);
    let class = EncoderOptions { pooling: Pooling::Cls, ..options(1, 1) };
    let class = encode(&mut FusedEncoder::new(&model, &class).unwrap(), &pixels);
    let both = encode(&mut FusedEncoder::new(&model, &options(1, 1)).unwrap(), &pixels);
    assert_eq!(class.row(0), &both.row(0)[..class.dim()]);
}
