//! What the tests of every encoder need, included by each of them (`#[path]`): the goldens of `transformers` and the
//! crops that they are of.

// Not every test uses everything, tests may unwrap, and what was skipped is worth seeing.
#![allow(dead_code, clippy::unwrap_used, clippy::print_stdout)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use foveate_core::{PixelBatch, VectorBuf};
use foveate_encode::Encoder;
use safetensors::{Dtype, SafeTensors};

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

/// The project's shared data, which is not part of a clone; `None` with a line on the terminal without it.
pub(crate) fn shared(path: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(path);
    if !path.exists() {
        println!("skipped: no {}", path.display());
        return None;
    }
    Some(path)
}

/// Vectors of the golden photos by tensor name, widened to f64, and the photos' names.
pub(crate) struct Goldens {
    pub(crate) tensors: HashMap<String, Vec<Vec<f64>>>,
    pub(crate) names: Vec<String>,
}

impl Goldens {
    pub(crate) fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let names = serde_json::from_str(&header.metadata().as_ref().unwrap()["names"]).unwrap();
        let tensors = file.iter().map(|(name, view)| {
            let values: Vec<f64> = match view.dtype() {
                Dtype::F32 => numbers(view.data(), |b| f32::from_le_bytes(b).into()),
                Dtype::F64 => numbers(view.data(), f64::from_le_bytes),
                other => panic!("{name} is {other:?}"),
            };
            (name.to_owned(), values.chunks(view.shape()[1]).map(<[f64]>::to_vec).collect())
        });
        Self { tensors: tensors.collect(), names }
    }
}

fn numbers<const N: usize>(data: &[u8], number: impl Fn([u8; N]) -> f64) -> Vec<f64> {
    data.as_chunks::<N>().0.iter().map(|&bytes| number(bytes)).collect()
}

/// The crops of a recipe that are at hand, `[n, height, width, 3]`, and which photos they are.
pub(crate) fn crops(folder: &Path, names: &[String], side: u32) -> (Vec<u8>, Vec<usize>) {
    let mut pixels = Vec::new();
    let mut photos = Vec::new();
    for (photo, name) in names.iter().enumerate() {
        let path = folder.join(format!("{name}.png"));
        if path.exists() {
            let crop = image::open(&path).unwrap().into_rgb8();
            assert_eq!(crop.dimensions(), (side, side));
            pixels.extend_from_slice(crop.as_raw());
            photos.push(photo);
        }
    }
    assert!(photos.len() >= 9, "{} has crops", folder.display());
    (pixels, photos)
}

pub(crate) fn encode(encoder: &mut dyn Encoder, pixels: &[u8]) -> VectorBuf {
    let mut out = VectorBuf::new();
    encoder.encode(PixelBatch::new(pixels, encoder.spec().input).unwrap(), &mut out).unwrap();
    out
}
