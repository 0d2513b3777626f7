//! The tests' models and files, and the tolerances of vectors.

// Not every test uses everything, and they print what they compared.
#![allow(dead_code, unused_imports, clippy::print_stdout)]

#[path = "../../../../tests/support/encoder.rs"]
mod encoder;

use std::path::Path;

use foveate_core::Size;
use foveate_dinov2::Model;
use foveate_encode::{Encoder, Graph, GraphFormat, GraphSource};

pub(crate) use encoder::{
    Goldens, HALF, SEEDED, STRICT, TINY, check, check_seeded, check_tiny, crops, encode, fixtures, golden_trials, keys,
    said, tiny,
};

/// The same model as TorchScript; the number of its registers is inferred.
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
