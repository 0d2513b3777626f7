//! Every family of image encoders, from the original file to the vector, through every compiled encoder. The goldens are
//! those of the families' own libraries, with small checkpoints of generated weights.

use std::path::Path;

use foveate_model::Model;
use foveate_testkit::{Trial, data};
use foveate_tests::backends::encoders;
use foveate_tests::numerics::cosine;
use foveate_tests::trial::{Outcome, ensure, trial};
use npyz::npz::NpzArchive;
use serde_json::Value;

use crate::backends;
use crate::files::Combination;

/// The folders of `families` in the shared data that are supported.
const CASES: [&str; 9] = [
    "clip-gelu",
    "clip-quickgelu",
    "dinov3-vit",
    "dinov3-vit-gated",
    "siglip",
    "siglip2-fixed",
    "tipsv2",
    "vit",
    "vit-nopooler",
];
/// Least cosine to the library's vector in f32.
const LEAST: f64 = 0.999_999;

pub(super) fn trials() -> Vec<Trial> {
    let (names, mut trials) = backends("family", &encoders());
    for encoder in names {
        trials.extend(CASES.map(|case| family(&encoder, case)));
    }
    trials
}

fn family(encoder: &str, case: &'static str) -> Trial {
    let encoder = encoder.to_owned();
    trial(format!("family::{case}::{encoder}"), move || {
        let folder = data("families").join(case);
        let golden: Value = serde_json::from_slice(&std::fs::read(folder.join("golden.json"))?)?;
        let combination = Combination::with_encoder(&encoder);
        for (photos, vectors, orient) in [
            ("photos", "vector", true),
            ("extra_photos", "extra_vector", true),
            ("unrotated_photos", "unrotated_vector", false),
        ] {
            let names: Vec<&str> = golden[photos].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let paths: Vec<_> = names.iter().map(|name| data(name)).collect();
            let model = Model::from_folder(&folder)?;
            let ours = combination.embed(model, foveate::Recipe::Hf, orient, &paths)?;
            let theirs = array(&folder, vectors)?;
            ensure(!ours.is_empty() && theirs.len() == ours.len() * ours[0].len(), || {
                format!("{vectors} differ in size")
            })?;
            for ((name, ours), theirs) in names.iter().zip(&ours).zip(theirs.chunks_exact(ours[0].len())) {
                let found = cosine(ours, theirs);
                ensure(found >= LEAST, || format!("{name}, {vectors}: cosine {found}"))?;
            }
        }
        Ok(())
    })
}

/// An array of f32 in golden.npz.
fn array(folder: &Path, name: &str) -> Result<Vec<f64>, Outcome> {
    let mut archive = NpzArchive::open(folder.join("golden.npz"))?;
    let array = archive.by_name(name)?.ok_or_else(|| Outcome::failed(format!("golden.npz has no {name}")))?;
    Ok(array.into_vec::<f32>()?.into_iter().map(f64::from).collect())
}
