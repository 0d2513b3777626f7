//! The model of the vectors that are searched.

use std::path::Path;

use anyhow::anyhow;
use foveate::embed::incomparable;
use foveate::model::OpenOptions;
use foveate::sink::RunManifest;

use super::vectors::Loaded;
use crate::cli::exit::Usage;
use crate::cli::progress::Download;

/// The model that made the vectors: the one that is asked for, or the manifest's.
pub(super) fn model_name(asked: Option<&str>, loaded: &Loaded) -> Result<String, Usage> {
    let of_manifest = loaded.manifest.as_ref().and_then(|manifest| manifest.fingerprint.get("model"));
    asked.or(of_manifest.map(String::as_str)).map(str::to_owned).ok_or_else(|| {
        let why = "the vectors do not say what made them; --model names the model, and `similar --id` searches without";
        anyhow!(why).into()
    })
}

/// The error of a model that does not open. Without `--model` nothing is fetched.
pub(super) fn not_open(asked: Option<&str>, name: &str, error: anyhow::Error) -> anyhow::Error {
    if asked.is_none() && !name.starts_with("seeded:") && !Path::new(name).exists() {
        return Usage::from(anyhow!(
            "the vectors' manifest names the model {name}, which is not on this machine; pass --model {name} to fetch \
             it, or --model with a folder that has its weights"
        ))
        .into();
    }
    error.context(format!("cannot open the model {name}; --model names it"))
}

/// The options to open the vectors' model. Without `--model` nothing is fetched: a manifest may be of somebody else,
/// whose word is no reason.
pub(super) fn open_options<'a>(asked: Option<&str>, download: &'a Download) -> OpenOptions<'a> {
    let mut options = OpenOptions { progress: download, ..OpenOptions::from_env() };
    options.hub.offline |= asked.is_none();
    options
}

/// Refuses queries that the model `name` makes with other settings or weights than those of the vectors.
pub(super) fn comparable(made: &RunManifest, name: &str, loaded: &Loaded) -> Result<(), Usage> {
    let difference = match &loaded.manifest {
        Some(manifest) => incomparable(&made.fingerprint, &manifest.fingerprint),
        None if made.dim == loaded.dim => None,
        None => Some(format!("they have {} dimensions, and {name} makes {}", loaded.dim, made.dim)),
    };
    match difference {
        None => Ok(()),
        Some(why) => Err(anyhow!("queries cannot be compared with these vectors: {why}").into()),
    }
}
