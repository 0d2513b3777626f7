//! The conformance suite of the `Encoder` trait, and the registry's answers.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use foveate_core::{PixelBatch, Size, VectorBuf};
use foveate_dinov2::Model;
use foveate_encode::{AnyModel, DType, EncodeError, Encoder, EncoderOptions, EncoderRegistry, Pooling, conformance};
use foveate_encode_fused::FusedEncoder;

fn tiny(name: &str) -> Model {
    let models: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models");
    Model::from_folder(&models.join(name)).unwrap()
}

#[test]
fn fused() {
    for name in ["tiny", "tiny-reg", "tiny-swiglu"] {
        let model = tiny(name);
        conformance::check(model.config.hidden_size, |options| Box::new(FusedEncoder::new(&model, options).unwrap()));
    }
}

#[test]
fn fused_on_other_input_sizes() {
    for (width, height) in [(14, 14), (98, 42), (224, 336)] {
        let mut model = tiny("tiny-reg");
        model.preprocess.crop = Size::new(width, height);
        conformance::check(model.config.hidden_size, |options| Box::new(FusedEncoder::new(&model, options).unwrap()));
    }
}

fn encode(encoder: &mut dyn Encoder, pixels: &[u8]) -> VectorBuf {
    let mut out = VectorBuf::new();
    encoder.encode(PixelBatch::new(pixels, encoder.spec().input).unwrap(), &mut out).unwrap();
    out
}

/// Input sizes at which an image is divided among many threads; the last thread's part has a size of its own.
#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let model = tiny("tiny");
    let pixels: Vec<u8> = (0..3).flat_map(|seed| conformance::noise(model.preprocess.crop, seed)).collect();
    let vectors = |threads| {
        let options = EncoderOptions { pooling: Pooling::ClsMean, threads, ..options() };
        encode(&mut FusedEncoder::new(&model, &options).unwrap(), &pixels)
    };
    let one = vectors(1);
    for threads in [2, 4, 5, 8, 17] {
        assert_eq!(vectors(threads), one, "{threads} threads");
    }
}

fn options() -> EncoderOptions {
    EncoderOptions { max_batch: 4, ..EncoderOptions::default() }
}

fn open(model: Model, options: &EncoderOptions) -> Result<Box<dyn Encoder>, EncodeError> {
    let mut registry = EncoderRegistry::new("encoder", &["fused"]);
    foveate_encode_fused::register(&mut registry).unwrap();
    registry.get("fused").unwrap().open(&AnyModel::Checkpoint(Arc::new(model)), options)
}

#[test]
fn the_registry_opens_it() {
    assert_eq!(open(tiny("tiny"), &options()).unwrap().spec().dim, 64);
}

#[test]
fn what_it_cannot_do_is_refused() {
    let other = open(tiny("tiny"), &EncoderOptions { device: "tpu:0".to_owned(), ..options() });
    assert!(matches!(other, Err(EncodeError::Device { device, .. }) if device == "tpu:0"));
    for dtype in [DType::F16, DType::Bf16] {
        assert!(matches!(open(tiny("tiny"), &EncoderOptions { dtype, ..options() }), Err(EncodeError::Unsupported(_))));
    }
    let mut odd = tiny("tiny");
    odd.preprocess.crop = Size::new(224, 225);
    assert!(matches!(open(odd, &options()), Err(EncodeError::Model(_))));
}

/// This process has no emulator; on a machine with a GPU, the device opens.
#[test]
fn without_a_gpu_that_is_said_in_one_line() {
    let gpu = open(tiny("tiny"), &EncoderOptions { device: "cuda:0".to_owned(), ..options() });
    match (gpu, cfg!(feature = "cuda")) {
        (Err(EncodeError::Device { device, reason }), false) => {
            assert_eq!((&*device, &*reason.to_string()), ("cuda:0", "built without CUDA: rebuild with `-F cuda`"));
        }
        (Err(EncodeError::Device { device, reason }), true) => {
            let reason = reason.to_string();
            assert!(device == "cuda:0" && reason.starts_with("no "), "{reason}");
            assert!(!reason.contains('\n') && reason.contains("; "), "one line, with a remedy: {reason}");
        }
        (opened, with_cuda) => assert!(with_cuda && opened.is_ok(), "{:?}", opened.err()),
    }
}
