//! Models and golden vectors; trials without ONNX Runtime end here.

// Not every test file uses everything, tests may unwrap, and they print what they compared.
#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::print_stdout)]

#[path = "../../../../tests/support/encoder.rs"]
mod encoder;

use std::path::PathBuf;

use foveate_core::{Backend, Size};
use foveate_dinov2::Model;
use foveate_encode::{DType, Encoder, EncoderOptions, EncoderRegistry, Graph, GraphFormat, GraphSource, Pooling};
use foveate_testkit::Resource;

pub(crate) use encoder::{Goldens, HALF, STRICT, TINY, Tier, encode, fixtures, said};

use encoder::{crops, distance, worse};

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

/// Exports a checkpoint as `foveate-dinov2`'s graph.
pub(crate) fn exported(model: &Model, dtype: DType, pooling: Pooling) -> Graph {
    Graph {
        name: model.name.clone(),
        format: GraphFormat::Onnx,
        source: GraphSource::Memory(model.to_onnx(dtype, pooling).unwrap().into()),
        input: model.preprocess.crop,
        mean: model.preprocess.mean,
        std: model.preprocess.std,
        registers: Some(model.config.num_register_tokens),
    }
}

pub(crate) fn options(pooling: Pooling, max_batch: usize) -> EncoderOptions {
    EncoderOptions { pooling, max_batch, ..EncoderOptions::default() }
}

impl Goldens {
    /// Compares `cls+mean` vectors of the recipe's crops with the goldens `<prefix>.cls*` and `<prefix>.patch_mean*`.
    pub(crate) fn check(&self, encoder: &mut dyn Encoder, recipe: &str, prefix: &str) {
        self.check_in(STRICT, encoder, recipe, prefix);
    }

    /// The same in another tier.
    pub(crate) fn check_in(&self, tier: Tier, encoder: &mut dyn Encoder, recipe: &str, prefix: &str) {
        assert_eq!(encoder.spec().pooling, Pooling::ClsMean);
        let (pixels, photos) = crops(&fixtures().join(format!("goldens/crop_{recipe}")), &self.names, 224);
        let vectors = encode(encoder, &pixels);
        let half = vectors.dim() / 2;
        for (pooling, part) in [("cls", 0..half), ("patch_mean", half..2 * half)] {
            let keys: Vec<&String> = self.tensors.keys().filter(|key| is_of(key, prefix, pooling)).collect();
            assert!(!keys.is_empty(), "goldens {prefix}.{pooling}");
            for key in keys {
                let compared = photos.iter().enumerate().map(|(row, &photo)| {
                    let found = distance(&vectors.row(row)[part.clone()], &self.tensors[key][photo]);
                    tier.check(&format!("{key} {}", self.names[photo]), found);
                    found
                });
                let (angle, error) = compared.fold((0.0, 0.0), worse);
                println!("{key:<50} {:>2} photos: 1 - cosine {angle:.1e}, error {error:.1e}", photos.len());
            }
        }
    }
}

/// `hf_pil.cls.f32`, and `dinov2-small.hf_pil.cls` with or without a suffix.
fn is_of(key: &str, prefix: &str, pooling: &str) -> bool {
    key.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.')).is_some_and(|rest| rest.starts_with(pooling))
}
