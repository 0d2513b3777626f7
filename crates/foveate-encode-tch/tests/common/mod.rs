//! Models and files of the tests, and how close vectors must be.

// Not every test uses everything, and what was compared is worth seeing.
#![allow(dead_code, unused_imports, clippy::print_stdout)]

#[path = "../../../../tests/support/encoder.rs"]
mod encoder;

use std::path::Path;

use foveate_core::Size;
use foveate_dinov2::Model;
use foveate_encode::{Encoder, Graph, GraphFormat, GraphSource};

pub(crate) use encoder::{Goldens, crops, encode, fixtures, shared};

pub(crate) const TINY: [&str; 3] = ["tiny", "tiny-reg", "tiny-swiglu"];

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

/// How close a vector must be to its golden: cosine and relative error.
#[derive(Clone, Copy)]
pub(crate) struct Tier {
    min_cosine: f64,
    max_error: f64,
}

pub(crate) const STRICT: Tier = Tier { min_cosine: 1.0 - 1e-6, max_error: 1e-4 };
pub(crate) const HALF: Tier = Tier { min_cosine: 0.999, max_error: 0.1 };

/// 1 - cosine and relative error of two vectors.
fn distance(ours: &[f32], golden: &[f64]) -> (f64, f64) {
    assert_eq!(ours.len(), golden.len());
    let pairs = || ours.iter().map(|&v| f64::from(v)).zip(golden.iter().copied());
    let dot = pairs().map(|(a, b)| a * b).sum::<f64>();
    let (own, other) = (pairs().map(|(a, _)| a * a).sum::<f64>(), pairs().map(|(_, b)| b * b).sum::<f64>());
    let error = pairs().map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt() / other.sqrt();
    (1.0 - dot / (own * other).sqrt(), error)
}

/// Compares both halves of `cls+mean` vectors with every golden of the recipe that there is.
pub(crate) fn check(
    what: &str,
    encoder: &mut dyn Encoder,
    goldens: &Goldens,
    keys: [&[String]; 2],
    crops: &Path,
    tier: Tier,
) {
    let side = encoder.spec().input.width;
    let (pixels, photos) = encoder::crops(crops, &goldens.names, side);
    let vectors = encode(encoder, &pixels);
    let half = vectors.dim() / 2;
    for (pooling, keys) in keys.iter().enumerate() {
        for key in keys.iter() {
            let Some(tensor) = goldens.tensors.get(key) else { continue };
            let (mut cosine, mut error) = (0.0f64, 0.0f64);
            for (row, &photo) in photos.iter().enumerate() {
                let ours = &vectors.row(row)[pooling * half..(pooling + 1) * half];
                let (c, e) = distance(ours, &tensor[photo]);
                let name = &goldens.names[photo];
                // Written so that a NaN fails.
                assert!(
                    c <= 1.0 - tier.min_cosine && e <= tier.max_error,
                    "{what} {key} {name}: 1 - cosine {c:e}, error {e:e}"
                );
                (cosine, error) = (cosine.max(c), error.max(e));
            }
            println!("{what:<36} {key:<44} {:>2} photos: 1 - cosine {cosine:.1e}, error {error:.1e}", photos.len());
        }
    }
}

pub(crate) fn keys(prefix: &str, suffixes: [&str; 2]) -> Vec<String> {
    suffixes.iter().map(|suffix| format!("{prefix}{suffix}")).collect()
}
