//! Models as graphs; trials without ONNX Runtime end here.

// Not every test file uses everything, and tests may unwrap.
#![allow(dead_code, clippy::unwrap_used)]

use std::path::PathBuf;

use foveate_core::{Backend, Size};
use foveate_encode::{DType, EncoderOptions, EncoderRegistry, Graph, GraphFormat, GraphSource, Pooling};
use foveate_model::Model;
use foveate_testkit::Resource;
use foveate_testkit::encoders::fixtures;

pub(crate) fn registry() -> EncoderRegistry<()> {
    let mut registry = EncoderRegistry::new("encoder", &["ort"]);
    foveate_encode_ort::register(&mut registry).unwrap();
    registry
}

/// Skips the trial if the library is missing.
pub(crate) fn need_onnx_runtime() {
    if let Some(problem) = registry().get("ort").unwrap().health().problem {
        Resource::OnnxRuntime.missing(problem.cause);
    }
}

/// A graph in a file, of images of 224 x 224 with ImageNet's mean and deviation.
pub(crate) fn graph(path: PathBuf, registers: Option<usize>) -> Graph {
    Graph {
        name: path.display().to_string(),
        format: GraphFormat::Onnx,
        source: GraphSource::File(path),
        input: Size::square(224),
        mean: [0.485, 0.456, 0.406],
        std: [0.229, 0.224, 0.225],
        registers,
    }
}

pub(crate) fn tiny(name: &str) -> Graph {
    graph(fixtures().join("models").join(name).join("model.baked224.onnx"), None)
}

/// Exports a checkpoint as `foveate-model`'s graph.
pub(crate) fn exported(model: &Model, dtype: DType, pooling: Pooling) -> Graph {
    Graph {
        name: model.name.clone(),
        format: GraphFormat::Onnx,
        source: GraphSource::Memory(model.to_onnx(dtype, pooling).unwrap().into()),
        input: model.preprocess.crop,
        mean: model.preprocess.mean,
        std: model.preprocess.std,
        registers: Some(model.network.num_register_tokens),
    }
}

pub(crate) fn options(pooling: Pooling, max_batch: usize) -> EncoderOptions {
    EncoderOptions { pooling, max_batch, ..EncoderOptions::default() }
}
