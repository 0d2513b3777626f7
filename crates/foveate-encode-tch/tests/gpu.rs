//! The same goldens on an NVIDIA GPU. Without one, every test is reported as ignored, with the encoder's error for the
//! requested device.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

mod common;

use std::process::ExitCode;

use common::tiny_script;
use foveate_core::{PixelBatch, VectorBuf};
use foveate_encode::{DType, EncodeError, Encoder, EncoderOptions, Pooling, conformance};
use foveate_encode_tch::TchEncoder;
use foveate_testkit::encoders::{HALF, STRICT, TINY, check_tiny, encode, said, tiny};
use foveate_testkit::{Resource, Trial, run_in_turn, trial};

const DEVICE: &str = "cuda:0";

fn main() -> ExitCode {
    let tests: [(&str, fn()); 6] = [
        ("f32, strict", || checkpoints(DType::F32)),
        ("f16, half", || checkpoints(DType::F16)),
        ("bf16, half", || checkpoints(DType::Bf16)),
        ("torchscript, strict", torchscript),
        ("the last batch is still there", the_last_batch_is_still_there),
        ("two encoders side by side", two_encoders_side_by_side),
    ];
    let trials = tests.into_iter().map(|(name, test)| on_device(name, test));
    // The tests share a device.
    run_in_turn(trials.chain([trial("beyond the last", beyond_the_last)]).collect())
}

fn on_device(name: &str, test: fn()) -> Trial {
    trial(format!("{DEVICE}: {name}"), move || match TchEncoder::new(&tiny("tiny"), &on(DType::F32)) {
        Ok(_) => test(),
        Err(error @ EncodeError::Device { .. }) => Resource::Gpu.missing(error),
        Err(error) => panic!("{error}"),
    })
}

fn on(dtype: DType) -> EncoderOptions {
    let device = DEVICE.to_owned();
    EncoderOptions { device, dtype, pooling: Pooling::ClsMean, max_batch: 30, ..EncoderOptions::default() }
}

fn checkpoints(dtype: DType) {
    for name in TINY {
        let mut encoder = TchEncoder::new(&tiny(name), &on(dtype)).unwrap();
        assert_eq!((encoder.spec().device.as_str(), encoder.spec().dtype), (DEVICE, dtype));
        let tier = if dtype == DType::F32 { STRICT } else { HALF };
        check_tiny(name, dtype.name(), &mut encoder, tier);
    }
}

fn torchscript() {
    for name in TINY {
        let mut encoder = TchEncoder::from_torchscript(&tiny_script(name), &on(DType::F32)).unwrap();
        check_tiny(name, "torchscript", &mut encoder, STRICT);
    }
}

fn the_last_batch_is_still_there() {
    let mut encoder = TchEncoder::new(&tiny("tiny"), &on(DType::F32)).unwrap();
    let mut again = VectorBuf::new();
    assert!(encoder.resident().is_none());
    for images in [3, 1] {
        let pixels: Vec<u8> = (0..images).flat_map(|seed| conformance::noise(encoder.spec().input, seed)).collect();
        let vectors = encode(&mut encoder, &pixels);
        let times = encoder.resident().unwrap().encode_again(&mut again).unwrap();
        assert_eq!(again, vectors);
        assert!(times.copy_in.is_zero() && !times.forward.is_zero());
    }
}

fn two_encoders_side_by_side() {
    let mut encoders = [0, 1].map(|_| TchEncoder::new(&tiny("tiny"), &on(DType::F32)).unwrap());
    let input = encoders[0].spec().input;
    let pixels: Vec<u8> = (0..4).flat_map(|seed| conformance::noise(input, seed)).collect();
    let expected = encode(&mut encoders[0], &pixels);
    std::thread::scope(|scope| {
        for encoder in &mut encoders {
            scope.spawn(|| {
                for _ in 0..50 {
                    let mut vectors = VectorBuf::new();
                    encoder.encode(PixelBatch::new(&pixels, input).unwrap(), &mut vectors).unwrap();
                    let far = vectors.as_slice().iter().zip(expected.as_slice()).any(|(a, b)| (a - b).abs() > 1e-3);
                    assert!(!far);
                }
            });
        }
    });
}

/// An error with and without GPUs.
fn beyond_the_last() {
    let options = EncoderOptions { device: "cuda:63".to_owned(), ..on(DType::F32) };
    let error = TchEncoder::new(&tiny("tiny"), &options).map(|_| ()).unwrap_err();
    let text = said(&error);
    assert!(matches!(error, EncodeError::Device { device, .. } if device == "cuda:63"), "{text}");
    let reasons = ["CUDA device(s), the first being cuda:0", "setup --only tch-cuda", "no NVIDIA GPU"];
    // The message names the missing library's file.
    assert!(!text.contains("setup --only") || text.contains(".so"), "{text}");
    assert!(!text.contains('\n') && reasons.iter().any(|reason| text.contains(reason)), "{text}");
}
