//! The conformance suite of the `Encoder` trait, and what the registry answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::Device;
use foveate_core::Size;
use foveate_dinov2::Model;
use foveate_encode::{AnyModel, DType, EncodeError, Encoder, EncoderOptions, EncoderRegistry, Pooling, conformance};
use foveate_encode_candle::{CandleEncoder, TensorEncoder};

fn tiny(name: &str) -> Model {
    let models: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models");
    Model::from_folder(&models.join(name)).unwrap()
}

#[test]
fn fused() {
    for name in ["tiny", "tiny-reg", "tiny-swiglu"] {
        let model = tiny(name);
        conformance::check(model.config.hidden_size, |options| Box::new(CandleEncoder::new(&model, options).unwrap()));
    }
}

#[test]
fn fused_on_other_input_sizes() {
    for (width, height) in [(14, 14), (98, 42), (224, 336)] {
        let mut model = tiny("tiny-reg");
        model.preprocess.crop = Size::new(width, height);
        conformance::check(model.config.hidden_size, |options| Box::new(CandleEncoder::new(&model, options).unwrap()));
    }
}

#[test]
fn tensors() {
    let model = tiny("tiny-swiglu");
    conformance::check(model.config.hidden_size, |options| {
        Box::new(TensorEncoder::new(&model, options, Device::Cpu).unwrap())
    });
}

/// Sizes at which an image is divided among many threads, the last of which gets a part of its own size.
#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let model = tiny("tiny");
    let pixels: Vec<u8> = (0..3).flat_map(|seed| conformance::noise(model.preprocess.crop, seed)).collect();
    let encode = |threads| {
        let options = EncoderOptions { pooling: Pooling::ClsMean, threads, ..options() };
        let mut encoder = CandleEncoder::new(&model, &options).unwrap();
        let mut out = foveate_core::VectorBuf::new();
        encoder.encode(foveate_core::PixelBatch::new(&pixels, encoder.spec().input).unwrap(), &mut out).unwrap();
        out
    };
    let one = encode(1);
    for threads in [2, 4, 5, 8, 17] {
        assert_eq!(encode(threads), one, "{threads} threads");
    }
}

fn options() -> EncoderOptions {
    EncoderOptions { pooling: Pooling::Cls, dtype: DType::F32, device: "cpu".to_owned(), max_batch: 4, threads: 1 }
}

fn open(model: &AnyModel, options: &EncoderOptions) -> Result<Box<dyn Encoder>, EncodeError> {
    let mut registry = EncoderRegistry::new("encoder", &["candle"]);
    foveate_encode_candle::register(&mut registry).unwrap();
    registry.get("candle").unwrap().open(model, options)
}

#[test]
fn the_registry_opens_it() {
    let model: AnyModel = Arc::new(tiny("tiny"));
    assert_eq!(open(&model, &options()).unwrap().spec().dim, 64);
}

#[test]
fn what_it_cannot_do_is_refused() {
    let model: AnyModel = Arc::new(tiny("tiny"));
    let gpu = open(&model, &EncoderOptions { device: "cuda:0".to_owned(), ..options() });
    assert!(matches!(gpu, Err(EncodeError::Device { device, .. }) if device == "cuda:0"));
    for dtype in [DType::F16, DType::Bf16] {
        assert!(matches!(open(&model, &EncoderOptions { dtype, ..options() }), Err(EncodeError::Unsupported(_))));
    }
    let other: AnyModel = Arc::new("no model");
    assert!(matches!(open(&other, &options()), Err(EncodeError::Model(_))));
    let mut odd = tiny("tiny");
    odd.preprocess.crop = Size::new(224, 225);
    assert!(matches!(open(&(Arc::new(odd) as AnyModel), &options()), Err(EncodeError::Model(_))));
}
