//! `foveate serve --index`.

use std::path::PathBuf;

use anyhow::anyhow;
use foveate::embed::incomparable;
use foveate::search::{Metric, Search, Vectors};
use foveate::serve::Index;
use foveate::sink::RunManifest;
use std::sync::Arc;

use super::vectors::{Loaded, load};
use crate::cli::exit::Usage;
use crate::cli::search_args::SearchArgs;

/// Reads vectors, which stay in memory as long as the process lives. Those of a served model must be like them.
pub(crate) fn index(inputs: &[PathBuf], served: &RunManifest) -> anyhow::Result<Index> {
    let args = SearchArgs { inputs: inputs.to_vec(), ..SearchArgs::default() };
    let (loaded, _) = load(&args, &[], None, Metric::Cosine)?;
    loaded.tell(&args);
    let difference = loaded.manifest.as_ref().and_then(|own| incomparable(&served.fingerprint, &own.fingerprint));
    let widths = || format!("they have {} dimensions, and the model {}", loaded.dim, served.dim);
    if let Some(difference) = difference.or_else(|| (loaded.dim != served.dim).then(widths)) {
        return Err(Usage::from(anyhow!("cannot serve these vectors: {difference}; serve with their model")).into());
    }
    let loaded: &'static Loaded = Box::leak(Box::new(loaded));
    let vectors = loaded.vectors(Metric::Cosine)?;
    tracing::info!(rows = loaded.ids.len(), "the index is in memory");
    Ok(Arc::new(move |asked, k| {
        let asked = asked.concat();
        let found = Vectors::new(&asked, loaded.dim, Metric::Cosine)
            .and_then(|asked| Search::default().nearest(&asked, &vectors, k))
            .map_err(|error| error.to_string())?;
        let of = |query| found.of(query).map(|(row, score)| (loaded.ids[row as usize].to_string(), score)).collect();
        Ok((0..found.len()).map(of).collect())
    }))
}
