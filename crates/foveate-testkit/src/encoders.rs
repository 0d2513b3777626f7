//! The fixture models, the goldens of `transformers` and their crops, for tests of encoders on a device.

use std::collections::HashMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use foveate_core::{PixelBatch, Size, VectorBuf};
use foveate_encode::Encoder;
use foveate_model::{Activation, AttentionBias, Grid, Model, SeededWeights};
use safetensors::{Dtype, SafeTensors};

use crate::workspace;

/// The fixture models.
pub const TINY: [&str; 3] = ["tiny", "tiny-reg", "tiny-swiglu"];

/// The folders of `families` in the shared data that are supported: each has a model's files, and goldens.
pub const FAMILIES: [&str; 15] = [
    "clip-gelu",
    "clip-quickgelu",
    "dinov2-reg-timm",
    "dinov3-timm",
    "dinov3-timm-gated",
    "dinov3-vit",
    "dinov3-vit-gated",
    "openclip",
    "pe-core-openclip",
    "pe-core-timm",
    "siglip",
    "siglip2-fixed",
    "tipsv2",
    "vit",
    "vit-nopooler",
];

/// Those with a text tower.
pub const TEXT_FAMILIES: [&str; 7] =
    ["clip-gelu", "clip-quickgelu", "openclip", "pe-core-openclip", "siglip", "siglip2-fixed", "tipsv2"];

/// The fixture model of this name.
pub fn tiny(name: &str) -> Model {
    Model::from_folder(&fixtures().join("models").join(name)).unwrap()
}

/// The folder of the committed fixtures.
pub fn fixtures() -> PathBuf {
    workspace().join("tests/fixtures")
}

/// Vectors of the golden photos by tensor name, widened to f64, and the photos' names.
pub struct Goldens {
    /// The vectors.
    pub tensors: HashMap<String, Vec<Vec<f64>>>,
    /// The photos.
    pub names: Vec<String>,
}

impl Goldens {
    /// Reads a file of goldens.
    pub fn read(path: &Path) -> Self {
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

    /// The vector of `photo` in a tensor.
    pub fn vector(&self, tensor: &str, photo: &str) -> &[f64] {
        let row = self.names.iter().position(|name| name == photo).unwrap_or_else(|| panic!("no golden of {photo}"));
        &self.tensors.get(tensor).unwrap_or_else(|| panic!("no goldens '{tensor}'"))[row]
    }
}

fn numbers<const N: usize>(data: &[u8], number: impl Fn([u8; N]) -> f64) -> Vec<f64> {
    data.as_chunks::<N>().0.iter().map(|&bytes| number(bytes)).collect()
}

/// The available crops of a recipe, `[n, height, width, 3]`, and the indexes of their photos.
pub fn crops(folder: &Path, names: &[String], side: u32) -> (Vec<u8>, Vec<usize>) {
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

/// A model with generated weights whose sizes all differ and are no multiples of a SIMD register's. Its head width has
/// no exact square root, and its queries, keys and values have no bias.
pub fn odd_widths(swiglu: bool) -> Model {
    let mut model = tiny("tiny-reg");
    model.preprocess.crop = Size::new(49, 35);
    model.network.hidden_size = 78;
    model.network.num_attention_heads = 3;
    model.network.mlp_hidden = 403;
    model.network.patch_size = 7;
    if let Some(table) = &mut model.network.positions {
        table.grid = Grid { height: 4, width: 4 };
    }
    model.network.attention_bias = AttentionBias::all(false);
    if swiglu {
        model.network.activation = Activation::GatedSilu;
    }
    model.weights = Box::new(SeededWeights::new(&model.network));
    model
}

/// The vectors of one batch.
pub fn encode(encoder: &mut dyn Encoder, pixels: &[u8]) -> VectorBuf {
    let mut out = VectorBuf::new();
    encoder.encode(PixelBatch::new(pixels, encoder.spec().format()).unwrap(), &mut out).unwrap();
    out
}

/// An error with its causes, whose line breaks it keeps.
pub fn said(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {}", said(cause)))
}

/// The permitted distance of a vector from its golden.
#[derive(Clone, Copy)]
pub struct Tier {
    /// Largest 1 - cosine.
    max_angle: f64,
    max_error: f64,
}

/// For f32.
pub const STRICT: Tier = Tier { max_angle: 1e-6, max_error: 1e-4 };
/// For f16 and bf16.
pub const HALF: Tier = Tier { max_angle: 1e-3, max_error: 0.1 };

/// 1 - cosine, and the length of the difference relative to the golden's.
pub fn distance(ours: &[f32], golden: &[f64]) -> (f64, f64) {
    assert_eq!(ours.len(), golden.len());
    let mut dot = 0.0;
    let mut own = 0.0;
    let mut other = 0.0;
    let mut error = 0.0;
    for (a, &b) in ours.iter().map(|&v| f64::from(v)).zip(golden) {
        dot += a * b;
        own += a * a;
        other += b * b;
        error += (a - b).powi(2);
    }
    (1.0 - dot / (own * other).sqrt(), error.sqrt() / other.sqrt())
}

impl Tier {
    /// Panics if the distance is larger.
    #[track_caller]
    pub fn check(self, what: &str, (angle, error): (f64, f64)) {
        // NaN must fail this comparison.
        assert!(angle <= self.max_angle && error <= self.max_error, "{what}: 1 - cosine {angle:e}, error {error:e}");
    }
}

/// The larger value of each.
pub fn worse((angle, error): (f64, f64), (a, e): (f64, f64)) -> (f64, f64) {
    (angle.max(a), error.max(e))
}

/// Compares both halves of `cls+mean` vectors with every available golden of the recipe.
fn check(what: &str, encoder: &mut dyn Encoder, goldens: &Goldens, keys: [&[String]; 2], folder: &Path, tier: Tier) {
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

/// Compares vectors of the fixture model `name` with its committed goldens. `form` tells its encoders apart.
pub fn check_tiny(name: &str, form: &str, encoder: &mut dyn Encoder, tier: Tier) {
    let folder = fixtures().join("goldens");
    let goldens = Goldens::read(&folder.join(format!("embeddings_{name}.safetensors")));
    for recipe in ["hf_pil", "squash"] {
        let [class, mean] =
            ["cls", "patch_mean"].map(|part| ["f32", "f64"].map(|dtype| format!("{recipe}.{part}.{dtype}")));
        assert!(class.iter().chain(&mean).filter(|&key| goldens.tensors.contains_key(key)).count() >= 2);
        let crops = folder.join(format!("crop_{recipe}"));
        check(&format!("{name} {form}"), encoder, &goldens, [&class, &mean], &crops, tier);
    }
}
