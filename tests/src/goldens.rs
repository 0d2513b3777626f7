//! Vectors and crops that `transformers`, Pillow and OpenCV computed.

use std::collections::BTreeMap;
use std::path::Path;

use foveate_core::{PixelBuf, PixelLimits, Size};
use safetensors::{Dtype, SafeTensors};

use crate::data::fixture;
use crate::trial::Outcome;

/// Golden vectors of one file: `[photos, dim]` tensors by key, rows by photo name.
pub struct Goldens {
    names: Vec<String>,
    tensors: BTreeMap<String, Vec<Vec<f64>>>,
}

impl Goldens {
    /// Reads `path`, whose metadata lists the photos' names under the key `names`.
    ///
    /// # Errors
    /// If it is not such a file.
    pub fn load(path: &Path) -> Result<Self, Outcome> {
        let bytes = std::fs::read(path).map_err(|error| Outcome::failed(format!("{}: {error}", path.display())))?;
        let (_, header) = SafeTensors::read_metadata(&bytes)?;
        let names = header.metadata().as_ref().and_then(|metadata| metadata.get("names"));
        let names = serde_json::from_str(names.ok_or_else(|| Outcome::failed("goldens without names"))?)?;
        let file = SafeTensors::deserialize(&bytes)?;
        let tensors = file.iter().map(|(name, tensor)| Ok((name.to_owned(), rows(&tensor)?)));
        Ok(Self { names, tensors: tensors.collect::<Result<_, Outcome>>()? })
    }

    /// The photos, in the order of the rows.
    pub fn photos(&self) -> &[String] {
        &self.names
    }

    /// The vector of `photo` under `key`.
    ///
    /// # Errors
    /// If there is none.
    pub fn vector(&self, key: &str, photo: &str) -> Result<&[f64], Outcome> {
        let row = self.names.iter().position(|name| name == photo);
        let tensor = self.tensors.get(key);
        let vector = tensor.zip(row).map(|(tensor, row)| tensor[row].as_slice());
        vector.ok_or_else(|| Outcome::failed(format!("no golden '{key}' of {photo}")))
    }
}

fn rows(tensor: &safetensors::tensor::TensorView<'_>) -> Result<Vec<Vec<f64>>, Outcome> {
    let values: Vec<f64> = match tensor.dtype() {
        Dtype::F32 => tensor.data().as_chunks().0.iter().map(|&b| f64::from(f32::from_le_bytes(b))).collect(),
        Dtype::F64 => tensor.data().as_chunks().0.iter().map(|&b| f64::from_le_bytes(b)).collect(),
        other => return Err(Outcome::failed(format!("goldens of type {other:?}"))),
    };
    let dim = *tensor.shape().last().ok_or_else(|| Outcome::failed("a golden without a shape"))?;
    Ok(values.chunks_exact(dim).map(<[f64]>::to_vec).collect())
}

/// Reads a PNG of 8-bit RGB, the format of golden pixels.
///
/// # Errors
/// If it is missing or not such a file.
pub fn png(path: &Path) -> Result<PixelBuf, Outcome> {
    let image = image::open(path).map_err(|error| Outcome::failed(format!("{}: {error}", path.display())))?;
    let image = image.into_rgb8();
    let mut pixels = PixelBuf::new(PixelLimits::DEFAULT);
    pixels.reset(Size::new(image.width(), image.height()))?.copy_from_slice(image.as_raw());
    Ok(pixels)
}

/// The names of the photos that have a fixture of this `kind` (`crop_hf_pil`, `crop_squash`, `decoded`), sorted.
///
/// # Errors
/// If the folder cannot be read.
pub fn photos_with(kind: &str) -> Result<Vec<String>, Outcome> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(fixture("goldens").join(kind))? {
        let path = entry?.path();
        names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
    }
    names.sort();
    if names.is_empty() { Err(Outcome::failed(format!("no goldens of kind {kind}"))) } else { Ok(names) }
}

/// The golden pixels of `photo` of a kind that [`photos_with`] lists.
///
/// # Errors
/// If there are none.
pub fn pixels(kind: &str, photo: &str) -> Result<PixelBuf, Outcome> {
    png(&fixture("goldens").join(kind).join(format!("{photo}.png")))
}
