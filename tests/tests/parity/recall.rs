//! Recall of a trained model on labelled photos: the effect of pixels and precision on meaningful vectors.

use foveate::Recipe;
use foveate::verify::recall_at_1;
use foveate_model::Model;
use foveate_testkit::{Trial, by_length, data};
use foveate_tests::trial::{Outcome, ensure, trial};

use crate::files::Combination;

/// Recall@1 that `transformers` reaches with the ViT-Tiny on each set of the shared data.
const EXPECTED: [(&str, f64); 2] = [("grocery", 0.858), ("clothing", 0.619)];
const TOLERANCE: f64 = 0.01;

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    // The short form takes the default combination alone; `files` compares the vectors of all.
    for combination in Combination::chosen().into_iter().take(by_length(1, usize::MAX)) {
        for (set, expected) in EXPECTED {
            let of = combination.clone();
            trials.push(trial(format!("recall::{}::{set}", combination.name()), move || {
                let found = recall(&of, set)?;
                ensure((found - expected).abs() <= TOLERANCE, || format!("recall@1 is {found:.3}, expected {expected}"))
            }));
        }
    }
    trials
}

fn recall(of: &Combination, set: &str) -> Result<f64, Outcome> {
    let model = Model::from_folder(&data("weights/vit-tiny-patch16-224"))?;
    let folder = data("labelled");
    let (paths, labels) = labelled(&folder, set)?;
    let vectors = of.embed(model, Recipe::Hf, true, &paths)?;
    recall_at_1(&vectors, &labels).ok_or_else(|| Outcome::failed("fewer than two photos"))
}

fn labelled(folder: &std::path::Path, set: &str) -> Result<(Vec<std::path::PathBuf>, Vec<String>), Outcome> {
    let mut reader = csv::Reader::from_path(folder.join("MANIFEST.csv"))?;
    let header = reader.headers()?.clone();
    let column = |name: &str| header.iter().position(|column| column == name).unwrap();
    let (file, label) = (column("file"), column("label"));
    let (mut paths, mut labels) = (Vec::new(), Vec::new());
    for record in reader.records() {
        let record = record?;
        if record[file].starts_with(set) {
            paths.push(folder.join(&record[file]));
            labels.push(record[label].to_owned());
        }
    }
    ensure(!paths.is_empty(), || format!("no labelled photos of '{set}'"))?;
    Ok((paths, labels))
}
