//! Properties of this encoder alone: equal bits, devices and refusals. The parity tests run the trait's suite and
//! compare with goldens.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use foveate_encode::{AnyModel, DType, EncodeError, Encoder, EncoderOptions, EncoderRegistry, Pooling, conformance};
use foveate_encode_fused::FusedEncoder;
use foveate_model::Model;
use foveate_testkit::encoders::{encode, tiny};

/// Input sizes at which an image is divided among many threads; the last thread's part has a size of its own.
#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let model = tiny("tiny");
    let pixels: Vec<u8> = (0..3).flat_map(|seed| conformance::noise(model.preprocess.crop, seed)).collect();
    // Elsewhere i8 is slower than f32, and refused.
    let i8 = cfg!(target_arch = "x86_64").then_some(DType::I8);
    for dtype in [DType::F32, DType::Bf16].into_iter().chain(i8) {
        let vectors = |threads| {
            let options = EncoderOptions { pooling: Pooling::ClsMean, threads, dtype, ..options() };
            encode(&mut FusedEncoder::new(&model, &options).unwrap(), &pixels)
        };
        let one = vectors(1);
        for threads in [2, 4, 5, 8, 17] {
            assert_eq!(vectors(threads), one, "{threads} threads in {}", dtype.name());
        }
    }
}

#[test]
fn a_class_vector_is_the_same_with_and_without_the_mean() {
    let model = tiny("tiny");
    let pixels = conformance::noise(model.preprocess.crop, 3);
    let [class, both] = [Pooling::Cls, Pooling::ClsMean].map(|pooling| {
        encode(&mut FusedEncoder::new(&model, &EncoderOptions { pooling, ..options() }).unwrap(), &pixels)
    });
    assert_eq!(class.row(0), &both.row(0)[..class.dim()]);
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
fn what_it_cannot_do_is_refused() {
    let other = open(tiny("tiny"), &EncoderOptions { device: "tpu:0".to_owned(), ..options() });
    assert!(matches!(other, Err(EncodeError::Device { device, .. }) if device == "tpu:0"));
    let half = open(tiny("tiny"), &EncoderOptions { dtype: DType::F16, ..options() });
    assert!(matches!(half, Err(EncodeError::Unsupported(_))));
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
