//! Devices and refusals. The parity tests run the trait's suite and compare with goldens.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use foveate_encode::{AnyModel, DType, EncodeError, Encoder, EncoderOptions, EncoderRegistry};
use foveate_model::Model;

fn tiny(name: &str) -> Model {
    let models: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models");
    Model::from_folder(&models.join(name)).unwrap()
}

fn open(model: Model, options: &EncoderOptions) -> Result<Box<dyn Encoder>, EncodeError> {
    let mut registry = EncoderRegistry::new("encoder", &["candle"]);
    foveate_encode_candle::register(&mut registry).unwrap();
    registry.get("candle").unwrap().open(&AnyModel::Checkpoint(Arc::new(model)), options)
}

fn on(device: &str) -> EncoderOptions {
    EncoderOptions { device: device.to_owned(), ..EncoderOptions::default() }
}

#[test]
fn what_it_cannot_do_is_refused() {
    assert!(matches!(open(tiny("tiny"), &on("tpu:0")), Err(EncodeError::Device { device, .. }) if device == "tpu:0"));
    for dtype in [DType::F16, DType::Bf16] {
        let refused = open(tiny("tiny"), &EncoderOptions { dtype, ..on("cpu") }).err();
        assert!(matches!(refused, Some(EncodeError::Unsupported(reason)) if reason.contains("use f32")));
    }
}

/// On a machine with a GPU, the device opens.
#[test]
fn without_a_gpu_it_says_so_in_one_line() {
    match (open(tiny("tiny"), &on("cuda:0")), cfg!(feature = "cuda")) {
        (Err(EncodeError::Device { device, reason }), false) => {
            let expected = "built without candle's CUDA backend: rebuild with `-F candle-cuda`";
            assert_eq!((&*device, &*reason.to_string()), ("cuda:0", expected));
        }
        (Err(EncodeError::Device { device, reason }), true) => {
            let reason = reason.to_string();
            assert!(device == "cuda:0" && reason.starts_with("no "), "{reason}");
            assert!(!reason.contains('\n') && reason.contains("; "), "one line, with a remedy: {reason}");
        }
        (opened, with_cuda) => assert!(with_cuda && opened.is_ok(), "{:?}", opened.err()),
    }
}
