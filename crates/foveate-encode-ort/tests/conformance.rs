//! The conformance suite of the `Encoder` trait on graphs of every kind, the registry's answers and the refusals. The
//! parity tests run it on models, and compare with goldens.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::process::ExitCode;

use foveate_core::{Backend, Size};
use foveate_encode::{
    AnyModel, DType, EncodeError, Encoder, EncoderOptions, Graph, GraphFormat, GraphSource, ModelForm, Pooling,
    conformance,
};
use foveate_encode_ort::OrtEncoder;
use foveate_testkit::encoders::{encode, said};
use foveate_testkit::{run, trials};
use support::{graph, need_onnx_runtime, options, registry, tiny};

fn main() -> ExitCode {
    run(trials![
        every_way_in_and_out,
        values_are_those_of_the_images,
        sessions_share_the_threads,
        every_optimization_level_gives_the_same,
        the_registry_opens_it,
        what_does_not_fit_is_refused_with_what_would,
        files_that_are_no_graphs_are_refused_in_one_line,
    ])
}

const SIZE: Size = Size { width: 8, height: 6 };

/// A graph of tests/graphs: `cls` is twice the mean of each channel, `patch_mean` the mean.
fn small(name: &str) -> Graph {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/graphs/{name}.onnx"));
    Graph { input: SIZE, ..graph(path, None) }
}

fn every_way_in_and_out() {
    need_onnx_runtime();
    for name in [
        "f32-nchw",
        "f32-nhwc",
        "u8-nchw",
        "u8-nhwc",
        "any-size",
        "one-image",
        "three-images",
        "three-floats",
        "tokens",
    ] {
        let graph = small(name);
        conformance::check(3, |options| Box::new(OrtEncoder::open(&graph, options).unwrap()));
    }
}

/// Means of the channels of an image as `graph` receives it: normalized, except for graphs that take bytes.
fn means(name: &str, image: &[u8]) -> [f32; 3] {
    let Graph { mean, std, .. } = small(name);
    let takes_bytes = name.starts_with("u8") || name == "three-images";
    std::array::from_fn(|channel| {
        let samples = image.chunks_exact(3).map(|pixel| f32::from(pixel[channel]) / 255.0);
        let average = samples.sum::<f32>() / (image.len() / 3) as f32;
        if takes_bytes { average } else { (average - mean[channel]) / std[channel] }
    })
}

fn values_are_those_of_the_images() {
    need_onnx_runtime();
    let images: Vec<u8> = (0..5).flat_map(|seed| conformance::noise(SIZE, seed)).collect();
    let cases = [
        ("f32-nchw", DType::F32, Pooling::ClsMean),
        ("f32-nhwc", DType::F32, Pooling::Mean),
        ("f16-nchw", DType::F16, Pooling::ClsMean),
        ("f16-nhwc", DType::F16, Pooling::ClsMean),
        ("u8-nchw", DType::F32, Pooling::ClsMean),
        ("u8-nhwc", DType::F32, Pooling::ClsMean),
        ("any-size", DType::F32, Pooling::ClsMean),
        ("one-image", DType::F32, Pooling::ClsMean),
        ("three-images", DType::F32, Pooling::ClsMean),
        ("three-floats", DType::F32, Pooling::ClsMean),
        ("tokens", DType::F32, Pooling::ClsMean),
        ("half-tokens", DType::F16, Pooling::ClsMean),
        ("vectors-only", DType::F32, Pooling::Cls),
    ];
    for (name, dtype, pooling) in cases {
        for threads in [1, 3] {
            let options = EncoderOptions { dtype, threads, ..options(pooling, 5) };
            let mut encoder = OrtEncoder::open(&small(name), &options).unwrap();
            assert_eq!((encoder.spec().dtype, encoder.spec().dim), (dtype, pooling.dim(3)), "{name}");
            let vectors = encode(&mut encoder, &images);
            let tolerance = if dtype == DType::F32 { 1e-5 } else { 5e-3 };
            for (i, image) in images.chunks_exact(SIZE.rgb_len().unwrap()).enumerate() {
                let mean = means(name, image);
                let class = mean.map(|value| 2.0 * value);
                let expected = match pooling {
                    Pooling::Cls => class.to_vec(),
                    Pooling::Mean => mean.to_vec(),
                    _ => [class, mean].concat(),
                };
                for (a, b) in vectors.row(i).iter().zip(&expected) {
                    assert!((a - b).abs() < tolerance, "{name}: {:?} is not {expected:?}", vectors.row(i));
                }
            }
        }
    }
}

fn every_optimization_level_gives_the_same() {
    need_onnx_runtime();
    let pixels: Vec<u8> = (0..4).flat_map(|seed| conformance::noise(Size::square(224), seed)).collect();
    let vectors = |level: &str| {
        let settings = [("optimization".to_owned(), level.to_owned())].into();
        let options = EncoderOptions { settings, threads: 2, ..options(Pooling::ClsMean, 4) };
        encode(&mut OrtEncoder::open(&tiny("tiny-reg"), &options).unwrap(), &pixels)
    };
    let expected = vectors("disable");
    for level in ["basic", "extended", "all"] {
        let found = vectors(level);
        let differences = found.as_slice().iter().zip(expected.as_slice()).map(|(a, b)| (a - b).abs());
        assert!(differences.fold(0.0, f32::max) < 1e-4, "{level}");
    }
}

/// One session for all threads, or one per thread: only the latter promises equal bits.
fn sessions_share_the_threads() {
    need_onnx_runtime();
    let images: Vec<u8> = (0..4).flat_map(|seed| conformance::noise(Size::square(224), seed)).collect();
    let open = |threads, sessions: Option<&str>| {
        let settings = sessions.map(|sessions| ("sessions".to_owned(), sessions.to_owned())).into_iter().collect();
        let options = EncoderOptions { threads, settings, ..options(Pooling::Cls, 4) };
        OrtEncoder::open(&tiny("tiny-reg"), &options)
    };
    let mut alone = open(1, None).unwrap();
    let expected = encode(&mut alone, &images);
    for (threads, sessions, is_invariant) in
        [(4, None, true), (4, Some("4"), true), (4, Some("2"), false), (4, Some("1"), false), (1, Some("1"), true)]
    {
        let mut encoder = open(threads, sessions).unwrap();
        assert_eq!(encoder.spec().batch_invariant, is_invariant);
        let vectors = encode(&mut encoder, &images);
        let close = vectors.as_slice().iter().zip(expected.as_slice()).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(close && (!is_invariant || vectors == expected), "{sessions:?} sessions of {threads} threads");
    }
    for sessions in ["3", "0", "-1", "many", "8"] {
        let error = open(4, Some(sessions)).map(|_| ()).unwrap_err();
        assert!(
            matches!(&error, EncodeError::Unsupported(text) if text.contains("does not divide 4 threads")),
            "{error}"
        );
    }
}

fn the_registry_opens_it() {
    need_onnx_runtime();
    let registry = registry();
    let backend = registry.get("ort").unwrap();
    assert!(backend.takes(ModelForm::Graph(GraphFormat::Onnx)) && !backend.takes(ModelForm::Checkpoint));
    let model = AnyModel::Graph(small("u8-nhwc"));
    let encoder = backend.open(&model, &EncoderOptions::default()).unwrap();
    assert_eq!(encoder.spec().dim, 3);
    let kernels = encoder.spec().kernels.as_deref();
    assert!(kernels.is_some_and(|kernels| kernels.starts_with("ONNX Runtime 1.")), "{kernels:?}");
    let health = backend.health();
    assert!(health.library.unwrap().starts_with("ONNX Runtime 1."));
    assert_eq!(health.devices[0], "cpu");
    let script = AnyModel::Graph(Graph { format: GraphFormat::TorchScript, ..small("tokens") });
    assert!(matches!(backend.open(&script, &EncoderOptions::default()), Err(EncodeError::Form { .. })));
}

fn refusal(graph: &Graph, options: &EncoderOptions) -> String {
    match OrtEncoder::open(graph, options).map(|_| ()) {
        Err(error) => said(&error),
        Ok(()) => panic!("{} was opened", graph.name),
    }
}

fn what_does_not_fit_is_refused_with_what_would() {
    need_onnx_runtime();
    let defaults = EncoderOptions::default();
    let other_size = Graph { input: Size::square(8), ..small("f32-nchw") };
    assert!(refusal(&other_size, &defaults).contains("images f32 [?, 3, 6, 8]: the images are RGB of 8x8"));
    let half = refusal(&small("f16-nchw"), &defaults);
    assert!(half.contains("the graph is f16, not f32: ask for f16, or export it in f32"), "{half}");
    let brain = refusal(&small("f32-nchw"), &EncoderOptions { dtype: DType::Bf16, ..EncoderOptions::default() });
    assert!(brain.contains("the graph is f32, not bf16"), "{brain}");
    let pooling = refusal(&small("vectors-only"), &options(Pooling::Mean, 1));
    assert!(pooling.contains("it gives output f32 [?, 3], and pooling 'mean' needs tokens"), "{pooling}");
    let registers = refusal(&Graph { registers: Some(4), ..small("tokens") }, &options(Pooling::Cls, 1));
    assert!(
        registers.contains("14 tokens are not a class token, 4 registers, as config.json says, and"),
        "{registers}"
    );
    for (name, value, expected) in [
        ("optimization", "most", "setting 'optimization' is 'most', not disable, basic, extended or all"),
        ("threads", "2", "unknown setting 'threads'; it has optimization, sessions"),
    ] {
        let settings = [(name.to_owned(), value.to_owned())].into();
        let error = refusal(&small("tokens"), &EncoderOptions { settings, ..EncoderOptions::default() });
        assert!(error.contains(expected), "{error}");
    }
    for (device, name, value, expected) in [
        ("cpu", "tf32", "on", "setting 'tf32'; it has optimization, sessions"),
        ("cuda:0", "sessions", "1", "unknown setting 'sessions'; it has optimization, tf32"),
        ("cuda:0", "tf32", "1", "setting 'tf32' is '1', not on or off"),
        ("tensorrt:0", "engine", "x", "unknown setting 'engine'; it has engine_cache, optimization, tf32"),
    ] {
        let settings = [(name.to_owned(), value.to_owned())].into();
        let options = EncoderOptions { device: device.to_owned(), settings, ..EncoderOptions::default() };
        let error = refusal(&small("tokens"), &options);
        assert!(error.contains(expected), "{error}");
    }
    let device = refusal(&small("tokens"), &EncoderOptions { device: "gpu".to_owned(), ..EncoderOptions::default() });
    assert!(device.contains("device gpu unavailable: there is no such device"), "{device}");
}

fn files_that_are_no_graphs_are_refused_in_one_line() {
    need_onnx_runtime();
    let absent = refusal(&small("absent"), &EncoderOptions::default());
    assert!(absent.contains("absent.onnx") && absent.contains("does not exist"), "{absent}");
    let whole = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/graphs/tokens.onnx")).unwrap();
    for bytes in [&b"not a graph"[..], &[], &whole[..whole.len() / 2]] {
        let graph = Graph { source: GraphSource::Memory(bytes.into()), name: "x".to_owned(), ..small("tokens") };
        let error = refusal(&graph, &EncoderOptions::default());
        assert!(error.starts_with("model: x: ") && !error.contains('\n'), "{error}");
    }
}
