//! `foveate serve --index`.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::anyhow;
use foveate::embed::incomparable;
use foveate::search::{Metric, Search, Vectors};
use foveate::serve::{Index, IndexFilter, IndexSource};
use foveate::sink::RunManifest;

use super::vectors::{Loaded, load};
use crate::cli::exit::Usage;
use crate::cli::search_args::SearchArgs;
use crate::cli::service_args::ServeArgs;

/// Vectors in memory.
struct ServedVectors {
    loaded: Loaded,
    columns: Vec<String>,
    lengths: Vec<f64>,
    /// The rows in the order of their ids.
    by_id: Vec<u32>,
}

/// Reads vectors, and says how they are read again. Those of a served model must be like them.
pub(crate) fn index(args: &ServeArgs, served: &RunManifest) -> anyhow::Result<IndexSource> {
    let args = SearchArgs {
        inputs: args.index.clone(),
        foreign: args.foreign.clone(),
        all_columns: true,
        ..SearchArgs::default()
    };
    let served = served.clone();
    let first = read(&args, &served)?;
    tracing::info!(rows = first.rows(), "the index is in memory");
    Ok(IndexSource { first, read: Arc::new(move || read(&args, &served).map_err(|error| format!("{error:#}"))) })
}

fn read(args: &SearchArgs, served: &RunManifest) -> anyhow::Result<Arc<dyn Index>> {
    let (mut loaded, _) = load(args, &[], None, Metric::Cosine)?;
    loaded.tell(args);
    if loaded.ids.is_empty() {
        loaded.dim = served.dim;
    }
    let difference = loaded.manifest.as_ref().and_then(|own| incomparable(&served.fingerprint, &own.fingerprint));
    let difference = difference.or_else(|| {
        let differ = loaded.dim != served.dim;
        differ.then(|| format!("they have {} dimensions, and the model {}", loaded.dim, served.dim))
    });
    if let Some(difference) = difference {
        return Err(Usage::from(anyhow!("cannot serve these vectors: {difference}; serve with their model")).into());
    }
    let lengths = loaded.vectors(Metric::Cosine)?.lengths().to_vec();
    let mut by_id: Vec<u32> = (0..loaded.ids.len() as u32).collect();
    by_id.sort_unstable_by_key(|&row| &loaded.ids[row as usize]);
    Ok(Arc::new(ServedVectors { columns: loaded.columns.keys().cloned().collect(), lengths, by_id, loaded }))
}

impl Index for ServedVectors {
    fn rows(&self) -> usize {
        self.loaded.ids.len()
    }

    fn dim(&self) -> usize {
        self.loaded.dim
    }

    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn id(&self, row: u32) -> &str {
        &self.loaded.ids[row as usize]
    }

    fn vector(&self, row: u32) -> &[f32] {
        &self.loaded.vectors[row as usize * self.loaded.dim..][..self.loaded.dim]
    }

    fn row(&self, id: &str) -> Result<u32, String> {
        if let Ok(place) = self.by_id.binary_search_by_key(&id, |&row| self.id(row)) {
            return Ok(self.by_id[place]);
        }
        let mut alike = self.loaded.ids.iter().filter(|known| is_end(known, id) || is_end(id, known));
        Err(match (alike.next(), alike.count()) {
            (None, _) => format!("no row has the id '{id:.200}'; name one as the vectors have it"),
            (Some(known), 0) => format!("no row has the id '{id:.200}'; did you mean '{known}'?"),
            (Some(known), more) => {
                format!("no row has the id '{id:.200}', and {} end so; name one, such as '{known}'", more + 1)
            }
        })
    }

    fn nearest(&self, queries: &[&[f32]], k: usize, filter: &IndexFilter) -> Result<Vec<Vec<(u32, f64)>>, String> {
        let mut lengths = self.lengths.clone();
        for (name, values) in filter {
            let wanted: HashSet<Option<&str>> = values.iter().map(Option::as_deref).collect();
            let column = self.loaded.columns.get(name);
            for (row, length) in lengths.iter_mut().enumerate() {
                let value = column.and_then(|values| values.get(row)).and_then(Option::as_deref);
                if !wanted.contains(&value) {
                    *length = f64::NAN;
                }
            }
        }
        let asked = queries.concat();
        let found = Vectors::with_lengths(&self.loaded.vectors, self.loaded.dim, Metric::Cosine, lengths)
            .and_then(|vectors| {
                let asked = Vectors::new(&asked, self.loaded.dim, Metric::Cosine)?;
                Search::default().nearest(&asked, &vectors, k)
            })
            .map_err(|error| error.to_string())?;
        Ok((0..found.len()).map(|query| found.of(query).collect()).collect())
    }
}

/// Returns true if `end` is the last part of a path or address, or its last parts.
fn is_end(id: &str, end: &str) -> bool {
    id.strip_suffix(end).is_some_and(|rest| rest.ends_with('/') && !end.is_empty())
}
