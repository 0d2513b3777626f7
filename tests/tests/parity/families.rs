//! Every family of image encoders, from the original file to the vector, through every compiled encoder. The goldens
//! are those of the families' own libraries, with small checkpoints of generated weights.

use std::path::{Path, PathBuf};

use foveate::pipeline::lane::Normalize;
use foveate::texts::TextEmbedder;
use foveate_core::Size;
use foveate_encode::{EncoderOptions, Pooling};
use foveate_model::{Model, OpenOptions};
use foveate_testkit::encoders::{FAMILIES, TEXT_FAMILIES};
use foveate_testkit::{Trial, data};
use foveate_tests::backends::encoders;
use foveate_tests::numerics::cosine;
use foveate_tests::trial::{Outcome, ensure, trial};
use npyz::npz::NpzArchive;
use serde_json::Value;

use crate::backends;
use crate::files::Combination;

/// The arrays of a golden, and their lists of photos.
const ARRAYS: [(&str, &str); 6] = [
    ("vector", "photos"),
    ("extra_vector", "extra_photos"),
    ("unrotated_vector", "unrotated_photos"),
    ("patch_mean", "photos"),
    ("register", "photos"),
    ("rect_vector", "photos"),
];
/// Least cosine to the library's vector in f32.
const LEAST: f64 = 0.999_999;
/// Largest difference of a logit to the library's.
const MOST_OF_LOGIT: f64 = 1e-3;

pub(super) fn trials() -> Vec<Trial> {
    let (names, mut trials) = backends("family", &encoders());
    for encoder in names {
        trials.extend(FAMILIES.map(|case| family(&encoder, case)));
    }
    trials.extend(TEXT_FAMILIES.map(words));
    trials
}

/// The texts' vectors, from the sentences on.
fn words(case: &'static str) -> Trial {
    trial(format!("family::{case}::words"), move || {
        let folder = data("families").join(case);
        let golden: Value = serde_json::from_slice(&std::fs::read(folder.join("golden.json"))?)?;
        let sentences = golden["texts"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let sentences: Vec<String> = sentences.map(str::to_owned).collect();
        let spec = folder.display().to_string();
        let embedder = TextEmbedder::open(&spec, &EncoderOptions::default(), &OpenOptions::from_env())?;
        let ours = embedder.embed(&sentences, Normalize::Off)?;
        let theirs = array(&folder, "text_vector")?.unwrap_or_default();
        ensure(theirs.len() == ours.vectors.len(), || "text_vector is of another size".to_owned())?;
        let pairs = ours.vectors.chunks_exact(ours.dim).zip(theirs.chunks_exact(ours.dim));
        for ((ours, theirs), sentence) in pairs.zip(&sentences) {
            let found = cosine(ours, theirs);
            ensure(found >= LEAST, || format!("'{sentence}': cosine {found}"))?;
        }
        let Some(scale) = embedder.logits() else { return Err(Outcome::failed("the weights have no scale")) };
        let images = array(&folder, "vector")?.unwrap_or_default();
        let logits = array(&folder, "logits_per_image")?.unwrap_or_default();
        ensure(logits.len() * ours.dim == images.len() * sentences.len(), || "logits of another size".to_owned())?;
        for (image, logits) in images.chunks_exact(ours.dim).zip(logits.chunks_exact(sentences.len())) {
            for (text, theirs) in ours.vectors.chunks_exact(ours.dim).zip(logits) {
                let found = scale.scale * cosine(text, image) + scale.bias.unwrap_or(0.0);
                ensure((found - theirs).abs() < MOST_OF_LOGIT, || format!("the logit {found}, not {theirs}"))?;
            }
        }
        Ok(())
    })
}

fn family(encoder: &str, case: &'static str) -> Trial {
    let encoder = encoder.to_owned();
    trial(format!("family::{case}::{encoder}"), move || {
        let folder = data("families").join(case);
        let golden: Value = serde_json::from_slice(&std::fs::read(folder.join("golden.json"))?)?;
        let combination = Combination::with_encoder(&encoder);
        for (name, photos) in ARRAYS {
            let Some(theirs) = array(&folder, name)? else { continue };
            let mut model = Model::from_folder(&folder)?;
            match name {
                "patch_mean" => model.network.pooling = Pooling::Mean,
                "register" => model.network.pooling = Pooling::Register,
                "rect_vector" => model.preprocess.crop = size(&golden["rect_size"]),
                _ => {}
            }
            let photos = golden[photos].as_array().into_iter().flatten().filter_map(Value::as_str);
            let paths: Vec<PathBuf> = photos.map(|photo| data(photo)).collect();
            let ours = combination.embed(model, foveate::Recipe::Hf, name != "unrotated_vector", &paths)?;
            ensure(theirs.len() == ours.iter().map(Vec::len).sum::<usize>(), || format!("{name} is of another size"))?;
            for ((path, ours), theirs) in paths.iter().zip(&ours).zip(theirs.chunks_exact(ours[0].len())) {
                let found = cosine(ours, theirs);
                ensure(found >= LEAST, || format!("{}, {name}: cosine {found}", path.display()))?;
            }
        }
        Ok(())
    })
}

fn size(json: &Value) -> Size {
    let [width, height] = ["width", "height"].map(|side| json[side].as_u64().unwrap_or(0) as u32);
    Size::new(width, height)
}

/// An array of f32 in golden.npz, if it is there.
fn array(folder: &Path, name: &str) -> Result<Option<Vec<f64>>, Outcome> {
    let mut archive = NpzArchive::open(folder.join("golden.npz"))?;
    let Some(array) = archive.by_name(name)? else { return Ok(None) };
    let is_by_column = array.order() == npyz::Order::Fortran;
    let rows = array.shape()[0] as usize;
    let values: Vec<f64> = array.into_vec::<f32>()?.into_iter().map(f64::from).collect();
    if !is_by_column {
        return Ok(Some(values));
    }
    let mut by_row = Vec::with_capacity(values.len());
    for row in 0..rows {
        by_row.extend(values[row..].iter().step_by(rows));
    }
    Ok(Some(by_row))
}
