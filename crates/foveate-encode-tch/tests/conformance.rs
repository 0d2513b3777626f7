//! What is specific to libtorch: half precision, TorchScript files, devices and refusals. The parity tests run the
//! trait's suite and compare with goldens.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::tiny_script;
use foveate_core::{Backend, Size};
use foveate_encode::{
    AnyModel, DType, EncodeError, Encoder, EncoderOptions, EncoderRegistry, Graph, GraphFormat, GraphSource, ModelForm,
    Pooling, conformance,
};
use foveate_encode_tch::TchEncoder;
use foveate_model::Model;
use foveate_testkit::encoders::{TINY, encode, fixtures, said, tiny};
use tch::{CModule, Tensor};

/// The trait's suite runs in f32; this checks the essentials in the others.
#[test]
fn half_precision_is_batch_invariant() {
    for (name, dtype) in TINY.into_iter().flat_map(|name| [(name, DType::Bf16), (name, DType::F16)]) {
        let open = |threads| TchEncoder::new(&tiny(name), &EncoderOptions { dtype, threads, ..options() }).unwrap();
        let images: Vec<Vec<u8>> = (0..3).map(|seed| conformance::noise(open(1).spec().input, seed)).collect();
        let mut one = open(1);
        let mut two = open(2);
        assert_eq!(one.spec().dtype, dtype);
        let together = encode(&mut two, &images.concat());
        for (i, image) in images.iter().enumerate() {
            assert_eq!(encode(&mut one, image).row(0), together.row(i), "{name} {dtype:?}");
        }
    }
}

#[test]
fn a_vector_is_the_same_in_every_pooling() {
    for dtype in [DType::F32, DType::Bf16] {
        let model = tiny("tiny-reg");
        let pixels = conformance::noise(model.preprocess.crop, 3);
        let [class, mean, both] = [Pooling::Cls, Pooling::Mean, Pooling::ClsMean].map(|pooling| {
            let options = EncoderOptions { pooling, dtype, max_batch: 1, ..EncoderOptions::default() };
            encode(&mut TchEncoder::new(&model, &options).unwrap(), &pixels)
        });
        assert_eq!([class.row(0), mean.row(0)].concat(), both.row(0));
    }
}

/// A caller may move the encoder from one of its threads to another.
#[test]
fn any_thread_gives_the_same_bits() {
    let mut encoder = TchEncoder::new(&tiny("tiny"), &options()).unwrap();
    let pixels = conformance::noise(encoder.spec().input, 1);
    let here = encode(&mut encoder, &pixels);
    let there = std::thread::scope(|scope| scope.spawn(|| encode(&mut encoder, &pixels)).join().unwrap());
    assert_eq!(here, there);
}

fn options() -> EncoderOptions {
    EncoderOptions { max_batch: 4, ..EncoderOptions::default() }
}

fn registry() -> EncoderRegistry<Model> {
    let mut registry = EncoderRegistry::new("encoder", &["tch"]);
    foveate_encode_tch::register(&mut registry).unwrap();
    registry
}

fn open(model: &AnyModel<Model>, options: &EncoderOptions) -> Result<Box<dyn Encoder>, EncodeError> {
    registry().get("tch").unwrap().open(model, options)
}

fn checkpoint(model: Model) -> AnyModel<Model> {
    AnyModel::Checkpoint(Arc::new(model))
}

fn refusal(model: AnyModel<Model>, options: &EncoderOptions) -> EncodeError {
    match open(&model, options) {
        Ok(_) => panic!("{options:?} must be refused"),
        Err(error) => {
            let text = said(&error);
            assert!(!text.contains('\n'), "an error is one line: {text}");
            error
        }
    }
}

#[test]
fn the_registry_opens_both_forms() {
    let registry = registry();
    let backend = registry.get("tch").unwrap();
    assert!(backend.takes(ModelForm::Checkpoint) && backend.takes(ModelForm::Graph(GraphFormat::TorchScript)));
    let health = backend.health();
    assert!(health.library.unwrap().starts_with("libtorch 2.13.0"));
    assert_eq!(health.devices[0], "cpu");
    for model in [checkpoint(tiny("tiny")), AnyModel::Graph(tiny_script("tiny"))] {
        assert_eq!(open(&model, &options()).unwrap().spec().dim, 64);
    }
}

#[test]
fn what_it_cannot_do_is_refused() {
    let onnx = AnyModel::Graph(Graph { format: GraphFormat::Onnx, ..tiny_script("tiny") });
    assert!(matches!(refusal(onnx, &options()), EncodeError::Form { .. }));
    let setting = EncoderOptions { settings: [("speed".to_owned(), "11".to_owned())].into(), ..options() };
    assert!(
        matches!(refusal(checkpoint(tiny("tiny")), &setting), EncodeError::Unsupported(text) if text.contains("speed"))
    );
    for (device, value, expected) in [
        ("cpu", "on", "setting 'tf32': it has no settings"),
        ("cuda:0", "yes", "setting 'tf32' is 'yes', not on or off"),
    ] {
        let settings = [("tf32".to_owned(), value.to_owned())].into();
        let tf32 = EncoderOptions { device: device.to_owned(), settings, ..options() };
        let text = refusal(checkpoint(tiny("tiny")), &tf32).to_string();
        assert!(text.contains(expected), "{text}");
    }
    let half = EncoderOptions { dtype: DType::Bf16, ..options() };
    let text = refusal(AnyModel::Graph(tiny_script("tiny")), &half).to_string();
    assert!(text.contains("bf16") && text.contains("f32"), "{text}");
}

/// There is no fallback to another device.
#[test]
fn a_device_that_is_not_there_is_an_error() {
    for name in ["cuda", "cuda:", "cuda:x", "cuda:-1", "gpu", "mps", "cuda:9999"] {
        let options = EncoderOptions { device: name.to_owned(), ..options() };
        for error in
            [refusal(checkpoint(tiny("tiny")), &options), refusal(AnyModel::Graph(tiny_script("tiny")), &options)]
        {
            assert!(matches!(error, EncodeError::Device { device, .. } if device == name));
        }
    }
}

#[test]
fn a_file_that_is_no_torchscript_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(fixtures().join("models/tiny/model.torchscript.pt")).unwrap();
    for (name, bytes) in [("empty.pt", &[][..]), ("text.pt", b"not a network"), ("half.pt", &whole[..whole.len() / 2])]
    {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        for source in [GraphSource::File(path.clone()), GraphSource::Memory(bytes.into())] {
            let graph = Graph { name: name.to_owned(), source, ..tiny_script("tiny") };
            assert!(
                matches!(refusal(AnyModel::Graph(graph), &options()), EncodeError::Model(text) if text.to_string().contains(name))
            );
        }
    }
    let absent = GraphSource::File(folder.path().join("absent.pt"));
    assert!(matches!(
        refusal(AnyModel::Graph(Graph { source: absent, ..tiny_script("tiny") }), &options()),
        EncodeError::Model(_)
    ));
}

#[test]
fn torchscript_from_memory_is_the_same() {
    let graph = tiny_script("tiny");
    let bytes = std::fs::read(fixtures().join("models/tiny/model.torchscript.pt")).unwrap();
    let memory = Graph { source: GraphSource::Memory(bytes.into()), ..graph.clone() };
    let pixels = conformance::noise(graph.input, 2);
    let [file, memory] =
        [graph, memory].map(|graph| encode(&mut TchEncoder::from_torchscript(&graph, &options()).unwrap(), &pixels));
    assert_eq!(file, memory);
}

/// Traces `network` on two images of 8 x 8.
fn traced(network: impl Fn(&Tensor) -> Tensor) -> Graph {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("traced.pt");
    let example = Tensor::rand([2, 3, 8, 8], (tch::Kind::Float, tch::Device::Cpu));
    let mut closure = |inputs: &[Tensor]| vec![network(&inputs[0])];
    CModule::create_by_tracing("Traced", "forward", &[example], &mut closure).unwrap().save(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    Graph {
        source: GraphSource::Memory(bytes.into()),
        input: Size::square(8),
        mean: [0.0; 3],
        std: [1.0; 3],
        ..tiny_script("tiny")
    }
}

#[test]
fn a_file_that_gives_vectors_has_no_patches() {
    let graph = traced(|images| images.mean_dim(&[2i64, 3][..], false, tch::Kind::Float));
    let mut encoder = TchEncoder::from_torchscript(&graph, &options()).unwrap();
    let pixels: Vec<u8> = (0..64).flat_map(|_| [0, 51, 255]).collect();
    let vectors = encode(&mut encoder, &pixels);
    assert!(vectors.as_slice().iter().zip([0.0, 0.2, 1.0]).all(|(a, b)| (a - b).abs() < 1e-6), "{vectors:?}");
    for pooling in [Pooling::Mean, Pooling::ClsMean] {
        let options = EncoderOptions { pooling, ..options() };
        assert!(matches!(refusal(AnyModel::Graph(graph.clone()), &options), EncodeError::Unsupported(_)));
    }
}

/// 16 patches of 2 x 2 behind a class token and two registers: the patches of a channel average to its mean.
#[test]
fn registers_are_not_averaged() {
    let network = |images: &Tensor| {
        let patches = images.avg_pool2d([2, 2], [2, 2], [0, 0], false, true, None).flatten(2, 3).transpose(1, 2);
        let prefix = patches.narrow(1, 0, 3) + 100.0;
        Tensor::cat(&[prefix, patches], 1)
    };
    let pixels: Vec<u8> = (0..64).flat_map(|_| [0, 51, 255]).collect();
    for registers in [None, Some(2)] {
        let graph = Graph { registers, ..traced(network) };
        let options = EncoderOptions { pooling: Pooling::ClsMean, ..options() };
        let vectors = encode(&mut TchEncoder::from_torchscript(&graph, &options).unwrap(), &pixels);
        let expected = [100.0, 100.2, 101.0, 0.0, 0.2, 1.0];
        assert!(vectors.as_slice().iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4), "{vectors:?}");
    }
    let graph = Graph { registers: Some(18), ..traced(network) };
    assert!(matches!(refusal(AnyModel::Graph(graph), &options()), EncodeError::Model(_)));
}

#[test]
fn a_file_that_takes_other_images_is_an_error() {
    let graph =
        traced(|images| images.flatten(1, 3).matmul(&Tensor::ones([192, 4], (tch::Kind::Float, tch::Device::Cpu))));
    assert!(TchEncoder::from_torchscript(&graph, &options()).is_ok());
    let larger = Graph { input: Size::square(16), ..graph };
    assert!(matches!(refusal(AnyModel::Graph(larger), &options()), EncodeError::Engine(_)));
}
