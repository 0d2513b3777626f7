//! Models and files of the tests.

// Not every test uses everything.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

use foveate_core::{PixelBatch, Size, VectorBuf};
use foveate_dinov2::Model;
use foveate_encode::{Encoder, Graph, GraphFormat, GraphSource};

pub(crate) const TINY: [&str; 3] = ["tiny", "tiny-reg", "tiny-swiglu"];

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

pub(crate) fn tiny(name: &str) -> Model {
    Model::from_folder(&fixtures().join("models").join(name)).unwrap()
}

/// The same model as TorchScript; the number of its registers is left to be inferred.
pub(crate) fn tiny_script(name: &str) -> Graph {
    let model = tiny(name);
    Graph {
        name: name.to_owned(),
        format: GraphFormat::TorchScript,
        source: GraphSource::File(fixtures().join("models").join(name).join("model.torchscript.pt")),
        input: Size::square(224),
        mean: model.preprocess.mean,
        std: model.preprocess.std,
        registers: None,
    }
}

pub(crate) fn encode(encoder: &mut dyn Encoder, pixels: &[u8]) -> VectorBuf {
    let mut out = VectorBuf::new();
    encoder.encode(PixelBatch::new(pixels, encoder.spec().input).unwrap(), &mut out).unwrap();
    out
}
