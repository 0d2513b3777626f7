//! The same goldens on NVIDIA GPUs, with CUDA and with TensorRT. Without such a device, every test is reported as
//! ignored, with the encoder's error for that device.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::process::ExitCode;

use foveate_core::{PixelBatch, VectorBuf};
use foveate_encode::{DType, EncodeError, Encoder, EncoderOptions, Pooling, conformance};
use foveate_encode_ort::OrtEncoder;
use foveate_testkit::encoders::{self, HALF, STRICT, TINY, check_tiny, encode, said};
use foveate_testkit::{Resource, Trial, run_in_turn, trial};
use support::{exported, options, tiny};

const DEVICES: [&str; 2] = ["cuda:0", "tensorrt:0"];

/// A test on a device.
type Test = fn(&str);

fn main() -> ExitCode {
    let tests: [(&str, Test); 6] = [
        ("graphs of others, f32, strict", graphs_of_others),
        ("our graphs, f32, strict", |device| our_graphs(device, DType::F32)),
        ("our graphs, f16, half", |device| our_graphs(device, DType::F16)),
        ("our graphs, bf16, half", |device| our_graphs(device, DType::Bf16)),
        ("the last batch is still there", the_last_batch_is_still_there),
        ("two encoders side by side", two_encoders_side_by_side),
    ];
    let of_device = |device: &'static str| tests.map(|(name, test)| on_device(name, device, test));
    let trials = DEVICES.into_iter().flat_map(of_device);
    let no_such = trial("a device that there is not", a_device_that_there_is_not);
    // The tests share a device and TensorRT's engines.
    run_in_turn(trials.chain([no_such]).collect())
}

fn on_device(name: &str, device: &'static str, test: Test) -> Trial {
    trial(format!("{device}: {name}"), move || match OrtEncoder::open(&tiny("tiny"), &on(device, DType::F32)) {
        Ok(_) => test(device),
        Err(error @ EncodeError::Device { .. }) => Resource::Gpu.missing(error),
        Err(error) => panic!("{error}"),
    })
}

/// TensorRT has no option here to disable TF32, so its f32 is compared in the half tier unless the environment disables
/// it.
fn tf32(device: &str) -> bool {
    device.starts_with("tensorrt") && std::env::var_os("NVIDIA_TF32_OVERRIDE").is_none_or(|value| value != "0")
}

fn on(device: &str, dtype: DType) -> EncoderOptions {
    let mut settings = std::collections::BTreeMap::new();
    if tf32(device) {
        settings.insert("tf32".to_owned(), "on".to_owned());
    }
    EncoderOptions { device: device.to_owned(), dtype, settings, ..options(Pooling::ClsMean, 30) }
}

fn hold(name: &str, encoder: &mut OrtEncoder, strict: bool) {
    check_tiny(name, &encoder.spec().device.clone(), encoder, if strict { STRICT } else { HALF });
}

fn graphs_of_others(device: &str) {
    for name in TINY {
        let mut encoder = OrtEncoder::open(&tiny(name), &on(device, DType::F32)).unwrap();
        assert_eq!(encoder.spec().device, device);
        hold(name, &mut encoder, !tf32(device));
    }
}

fn our_graphs(device: &str, dtype: DType) {
    for name in TINY {
        let graph = exported(&encoders::tiny(name), dtype, Pooling::ClsMean);
        let mut encoder = OrtEncoder::open(&graph, &on(device, dtype)).unwrap();
        assert_eq!(encoder.spec().dtype, dtype);
        hold(name, &mut encoder, dtype == DType::F32 && !tf32(device));
    }
}

fn the_last_batch_is_still_there(device: &str) {
    let graph = exported(&encoders::tiny("tiny"), DType::F32, Pooling::ClsMean);
    let mut encoder = OrtEncoder::open(&graph, &on(device, DType::F32)).unwrap();
    let mut again = VectorBuf::new();
    assert!(encoder.resident().is_none());
    for images in [3, 1] {
        let pixels: Vec<u8> = (0..images).flat_map(|seed| conformance::noise(graph.input, seed)).collect();
        let vectors = encode(&mut encoder, &pixels);
        let times = encoder.resident().unwrap().encode_again(&mut again).unwrap();
        assert_eq!(again, vectors);
        assert!(times.copy_in.is_zero() && !times.forward.is_zero());
    }
}

fn two_encoders_side_by_side(device: &str) {
    let graph = exported(&encoders::tiny("tiny"), DType::F32, Pooling::ClsMean);
    let pixels: Vec<u8> = (0..4).flat_map(|seed| conformance::noise(graph.input, seed)).collect();
    let mut encoders = [0, 1].map(|_| OrtEncoder::open(&graph, &on(device, DType::F32)).unwrap());
    let expected = encode(&mut encoders[0], &pixels);
    std::thread::scope(|scope| {
        for encoder in &mut encoders {
            scope.spawn(|| {
                for _ in 0..50 {
                    let mut vectors = VectorBuf::new();
                    encoder.encode(PixelBatch::new(&pixels, graph.input).unwrap(), &mut vectors).unwrap();
                    let far = vectors.as_slice().iter().zip(expected.as_slice()).any(|(a, b)| (a - b).abs() > 1e-3);
                    assert!(!far);
                }
            });
        }
    });
}

/// An error even if there are other devices.
fn a_device_that_there_is_not() {
    for device in ["cuda:63", "tensorrt:63"] {
        let cache = tempfile::tempdir().unwrap();
        let mut options = EncoderOptions { device: device.to_owned(), dtype: DType::F16, ..options(Pooling::Cls, 1) };
        if device.starts_with("tensorrt") {
            let folder = cache.path().join("engines").display().to_string();
            options.settings.insert("engine_cache".to_owned(), folder);
        }
        let error = OrtEncoder::open(&tiny("tiny"), &options).map(|_| ()).unwrap_err();
        let text = said(&error);
        assert!(matches!(error, EncodeError::Device { device: named, .. } if named == device), "{text}");
        assert!(!text.contains('\n'), "{text}");
        assert!(!Path::new(cache.path()).join("engines").exists(), "nothing is made for a device that is not there");
    }
}
