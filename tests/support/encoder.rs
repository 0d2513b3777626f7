//! Shared parts of the encoders' tests, included by each of them (`#[path]`): the goldens of `transformers` and their
//! crops.

// Not every test uses everything, tests may unwrap, and what was compared is worth seeing.
#![allow(dead_code, clippy::unwrap_used, clippy::print_stdout)]

use std::collections::HashMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use foveate_core::{PixelBatch, VectorBuf};
use foveate_dinov2::Model;
use foveate_encode::Encoder;
use foveate_testkit::{Trial, by_length, data, trial, workspace};
use safetensors::{Dtype, SafeTensors};

/// The fixture models.
pub(crate) const TINY: [&str; 3] = ["tiny", "tiny-reg", "tiny-swiglu"];
/// Cards of models with generated weights, and the goldens' names for these.
pub(crate) const SEEDED: [(&str, &str); 2] =
    [("dinov2-small", "dinov2-small"), ("dinov2-with-registers-small", "dinov2-small-with-registers")];

pub(crate) fn tiny(name: &str) -> Model {
    Model::from_folder(&fixtures().join("models").join(name)).unwrap()
}

pub(crate) fn fixtures() -> PathBuf {
    workspace().join("tests/fixtures")
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

/// The available crops of a recipe, `[n, height, width, 3]`, and the indexes of their photos.
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

/// An error with its causes, whose line breaks it keeps.
pub(crate) fn said(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {}", said(cause)))
}

/// How close a vector must be to its golden.
#[derive(Clone, Copy)]
pub(crate) struct Tier {
    /// Largest 1 - cosine.
    max_angle: f64,
    max_error: f64,
}

/// For f32.
pub(crate) const STRICT: Tier = Tier { max_angle: 1e-6, max_error: 1e-4 };
/// For f16 and bf16.
pub(crate) const HALF: Tier = Tier { max_angle: 1e-3, max_error: 0.1 };

/// 1 - cosine, and the length of the difference relative to the golden's.
pub(crate) fn distance(ours: &[f32], golden: &[f64]) -> (f64, f64) {
    assert_eq!(ours.len(), golden.len());
    let pairs = || ours.iter().map(|&v| f64::from(v)).zip(golden.iter().copied());
    let dot = pairs().map(|(a, b)| a * b).sum::<f64>();
    let (own, other) = (pairs().map(|(a, _)| a * a).sum::<f64>(), pairs().map(|(_, b)| b * b).sum::<f64>());
    let error = pairs().map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt() / other.sqrt();
    (1.0 - dot / (own * other).sqrt(), error)
}

impl Tier {
    #[track_caller]
    pub(crate) fn check(self, what: &str, (angle, error): (f64, f64)) {
        // NaN must fail this comparison.
        assert!(angle <= self.max_angle && error <= self.max_error, "{what}: 1 - cosine {angle:e}, error {error:e}");
    }
}

/// The larger value of each.
pub(crate) fn worse((angle, error): (f64, f64), (a, e): (f64, f64)) -> (f64, f64) {
    (angle.max(a), error.max(e))
}

/// Compares both halves of `cls+mean` vectors with every available golden of the recipe.
pub(crate) fn check(
    what: &str,
    encoder: &mut dyn Encoder,
    goldens: &Goldens,
    keys: [&[String]; 2],
    folder: &Path,
    tier: Tier,
) {
    let side = encoder.spec().input.width;
    let (pixels, photos) = crops(folder, &goldens.names, side);
    let vectors = encode(encoder, &pixels);
    let half = vectors.dim() / 2;
    for (pooling, keys) in keys.iter().enumerate() {
        for key in keys.iter() {
            let Some(tensor) = goldens.tensors.get(key) else { continue };
            let mut worst = (0.0, 0.0);
            for (row, &photo) in photos.iter().enumerate() {
                let found = distance(&vectors.row(row)[pooling * half..(pooling + 1) * half], &tensor[photo]);
                tier.check(&format!("{what} {key} {}", goldens.names[photo]), found);
                worst = worse(worst, found);
            }
            let (angle, error) = worst;
            println!("{what:<36} {key:<50} {:>2} photos: 1 - cosine {angle:.1e}, error {error:.1e}", photos.len());
        }
    }
}

/// Trials of an encoder of checkpoints, opened for `cls+mean`: its vectors are the goldens' of every model.
pub(crate) fn golden_trials<E: Encoder + 'static>(open: fn(&Model) -> E) -> Vec<Trial> {
    let tiny_models = move |folder: &Path| {
        TINY.iter().for_each(|name| check_tiny(name, "", &mut open(&tiny(name)), folder, STRICT));
    };
    let seeded_models = move |goldens: &Path, crops: &Path| {
        for (card, name) in SEEDED {
            check_seeded(name, "", &mut open(&Model::seeded(card).unwrap()), goldens, crops, STRICT);
        }
    };
    let committed = || fixtures().join("goldens");
    let seeded = "seeded_embeddings.safetensors";
    let tiny = vec![
        trial("tiny_models", move || tiny_models(&committed())),
        trial("tiny_models_and_more_goldens", move || tiny_models(&data("goldens/hf"))),
    ];
    let full_size = vec![
        trial("seeded_models", move || seeded_models(&committed().join(seeded), &committed())),
        trial("seeded_models_and_more_goldens", move || {
            seeded_models(&data(&format!("goldens/{seeded}")), &data("goldens/hf"));
        }),
    ];
    // The parity tests compare every encoder with the same goldens, also in the short form.
    tiny.into_iter().chain(by_length(vec![], full_size)).collect()
}

/// Compares vectors of the fixture model `name` with every available golden. `form` tells its encoders apart.
pub(crate) fn check_tiny(name: &str, form: &str, encoder: &mut dyn Encoder, folder: &Path, tier: Tier) {
    let goldens = Goldens::read(&folder.join(format!("embeddings_{name}.safetensors")));
    for recipe in ["hf_pil", "squash"] {
        let class = keys(&format!("{recipe}.cls"), [".f32", ".f64"]);
        let mean = keys(&format!("{recipe}.patch_mean"), [".f32", ".f64"]);
        assert!(class.iter().chain(&mean).filter(|&key| goldens.tensors.contains_key(key)).count() >= 2);
        let crops = folder.join(format!("crop_{recipe}"));
        check(&format!("{name} {form}"), encoder, &goldens, [&class, &mean], &crops, tier);
    }
}

/// Compares vectors of a model with generated weights, which the goldens call `name`; `crops` is the folder of the
/// crops.
pub(crate) fn check_seeded(
    name: &str,
    form: &str,
    encoder: &mut dyn Encoder,
    goldens: &Path,
    crops: &Path,
    tier: Tier,
) {
    let goldens = Goldens::read(goldens);
    for recipe in ["hf_pil", "squash"] {
        let class = keys(&format!("{name}.{recipe}"), [".cls", ".cls64"]);
        let mean = [format!("{name}.{recipe}.patch_mean")];
        assert!(goldens.tensors.contains_key(&class[0]) && goldens.tensors.contains_key(&mean[0]));
        let crops = crops.join(format!("crop_{recipe}"));
        check(&format!("{name} {form}"), encoder, &goldens, [&class, &mean], &crops, tier);
    }
}

pub(crate) fn keys(prefix: &str, suffixes: [&str; 2]) -> Vec<String> {
    suffixes.iter().map(|suffix| format!("{prefix}{suffix}")).collect()
}
