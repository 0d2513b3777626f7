//! Checkpoints that `foveate-model` wrote as ONNX: half precision, and ONNX's own checker. The parity tests compare
//! them with goldens.

// Tests may unwrap, and they print what they compared.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod support;

use std::io::Write;
use std::process::{ExitCode, Stdio};

use foveate_core::{CHANNELS, Size};
use foveate_encode::{DType, EncodeError, EncoderOptions, Pooling, conformance};
use foveate_encode_ort::OrtEncoder;
use foveate_model::Model;
use foveate_testkit::encoders::{encode, odd_widths, tiny};
use foveate_testkit::{python, run, trials};
use support::{exported, need_onnx_runtime, options};

fn main() -> ExitCode {
    run(trials![half_precision, python_finds_the_graphs_valid_and_computes_the_same,])
}

fn open(model: &Model, options: &EncoderOptions) -> OrtEncoder {
    OrtEncoder::open(&exported(model, options.dtype, options.pooling), options).unwrap()
}

fn half_precision() {
    need_onnx_runtime();
    for model in [odd_widths(false), odd_widths(true), tiny("tiny")] {
        let pixels = conformance::noise(model.preprocess.crop, 5);
        let full = encode(&mut open(&model, &options(Pooling::ClsMean, 1)), &pixels);
        let options = EncoderOptions { dtype: DType::F16, ..options(Pooling::ClsMean, 1) };
        let mut encoder = open(&model, &options);
        let half = encode(&mut encoder, &pixels);
        let cosine = cosine(half.row(0), full.row(0));
        println!("{}: 1 - cosine of f16 and f32 {:.2e}", model.name, 1.0 - cosine);
        assert!(cosine > 0.9999 && cosine < 1.0 - 1e-12, "{cosine}");
        let graph = exported(&model, DType::F16, Pooling::Cls);
        let refused = OrtEncoder::open(&graph, &EncoderOptions::default()).err();
        assert!(matches!(refused, Some(EncodeError::Unsupported(text)) if text.contains("the graph is f16, not f32")));
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Checks a graph, runs it on the image that follows it on stdin, and prints the vector.
const CHECK: &str = r#"
import sys
import numpy, onnx, onnxruntime
data = sys.stdin.buffer.read()
size, height, width = (int(x) for x in sys.argv[1:4])
model, image = data[:size], data[size:]
onnx.checker.check_model(onnx.load_model_from_string(model), full_check=True)
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
pixels = numpy.frombuffer(image, numpy.uint8).reshape(1, height, width, 3)
(vectors,) = session.run(["cls"], {"pixels": pixels})
assert vectors.shape[0] == 1, vectors.shape
print(*vectors[0].astype(numpy.float32).tolist())
"#;

fn python_finds_the_graphs_valid_and_computes_the_same() {
    need_onnx_runtime();
    for (model, dtype) in
        [(tiny("tiny-reg"), DType::F32), (odd_widths(true), DType::F32), (odd_widths(false), DType::F16)]
    {
        let Size { width, height } = model.preprocess.crop;
        let image = conformance::noise(model.preprocess.crop, 11);
        assert_eq!(image.len(), (width * height) as usize * CHANNELS);
        let file = model.to_onnx(dtype, Pooling::ClsMean).unwrap();
        let sizes = [file.len().to_string(), height.to_string(), width.to_string()];
        let mut child = python(&["numpy", "onnx", "onnxruntime"]);
        let child = child.arg("-c").arg(CHECK).args(sizes).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&file).unwrap();
        stdin.write_all(&image).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "the checker or the runtime of Python refuses the graph");
        let text = String::from_utf8(output.stdout).unwrap();
        let theirs: Vec<f32> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let ours = encode(&mut open(&model, &EncoderOptions { dtype, ..options(Pooling::Cls, 1) }), &image);
        let tolerance = if dtype == DType::F32 { 1.0 - 1e-9 } else { 0.9999 };
        assert!(cosine(ours.row(0), &theirs) > tolerance && ours.dim() == theirs.len());
    }
}
