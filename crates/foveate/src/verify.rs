//! Compares the vectors of two configurations on the user's own images.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use foveate_model::OpenOptions;
use foveate_pipeline::{Cancel, Progress, RunError};
use foveate_sink::Failure;
use foveate_source::Source;

use crate::collect::{Collected, CollectedRow, MemorySink, Sample};
use crate::embed::{Backends, EmbedError, Settings};

/// The outcome of [`run`].
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Images with a vector under both configurations, in source order.
    pub pairs: Vec<Pair>,
    /// Images with a vector under only one configuration.
    pub one_sided: Vec<OneSided>,
    /// Number of images without a vector under either configuration.
    pub failed_under_both: u64,
    /// Share of the pairs whose nearest other image by cosine is the same under both; `None` for fewer than three
    /// pairs.
    pub same_neighbour: Option<f64>,
    /// Duration of each run, the configuration's first; the model was loaded before.
    pub wall: [Duration; 2],
    /// The entries that differ between the two fingerprints: name, value, other value.
    pub differences: Vec<(String, String, String)>,
}

/// An image under both configurations.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// The image's id.
    pub id: String,
    /// Cosine of the angle between its two vectors.
    pub cosine: f64,
    /// max |a − b| ÷ max |b|.
    pub relative_error: f64,
    /// The vectors.
    pub vectors: [Vec<f32>; 2],
}

/// An image that has a vector under one configuration only.
#[derive(Clone, Debug, PartialEq)]
pub struct OneSided {
    /// The configuration that it failed under: 0 for the first, 1 for the other.
    pub failed_under: usize,
    /// The failure.
    pub failure: Failure,
}

/// The reason that two configurations could not be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// One configuration cannot start.
    #[error(transparent)]
    Embed(#[from] EmbedError),
    /// One configuration's run stopped.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The vectors of the two have different widths.
    #[error("vectors of {0} and of {1} components cannot be compared")]
    Dimensions(usize, usize),
    /// The comparison was interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// Embeds a sample under both configurations and compares the vectors. The configurations' own inputs are ignored.
///
/// # Errors
/// [`VerifyError`]. Images that fail are part of the result.
pub fn run(
    sample: Sample,
    first: &Settings,
    second: &Settings,
    backends: &Arc<Backends>,
    model: &OpenOptions<'_>,
    cancel: &Cancel,
) -> Result<Comparison, VerifyError> {
    of_sources((Box::new(sample.clone()), first), (Box::new(sample), second), backends, model, cancel)
}

/// Does the same with two sources of the same images, whose bytes may differ.
///
/// # Errors
/// [`VerifyError`]. Images that fail are part of the result.
pub fn of_sources(
    (first_source, first): (Box<dyn Source>, &Settings),
    (second_source, second): (Box<dyn Source>, &Settings),
    backends: &Arc<Backends>,
    model: &OpenOptions<'_>,
    cancel: &Cancel,
) -> Result<Comparison, VerifyError> {
    let a = Side::embed(first, first_source, backends, model, cancel)?;
    let b = Side::embed(second, second_source, backends, model, cancel)?;
    if a.dim != b.dim {
        return Err(VerifyError::Dimensions(a.dim, b.dim));
    }
    Ok(compare(a, b))
}

/// One configuration's run.
struct Side {
    dim: usize,
    fingerprint: BTreeMap<String, String>,
    wall: Duration,
    collected: Collected,
}

impl Side {
    fn embed(
        options: &Settings,
        source: Box<dyn Source>,
        backends: &Arc<Backends>,
        model: &OpenOptions<'_>,
        cancel: &Cancel,
    ) -> Result<Self, VerifyError> {
        let sink = MemorySink::default();
        let job = options.prepare_into(source, Box::new(sink.clone()), backends, model)?;
        let (dim, fingerprint) = (job.manifest().dim, job.manifest().fingerprint.clone());
        let report = job.run(cancel, &Progress::default())?;
        if !report.is_complete() {
            return Err(VerifyError::Interrupted);
        }
        Ok(Self { dim, fingerprint, wall: report.wall, collected: sink.take() })
    }
}

fn compare(a: Side, b: Side) -> Comparison {
    let differences = differences(&a.fingerprint, &b.fingerprint);
    let wall = [a.wall, b.wall];
    let mut others: BTreeMap<u64, CollectedRow> = b.collected.rows.into_iter().map(|row| (row.index, row)).collect();
    let mut pairs = Vec::new();
    for row in a.collected.rows {
        // A row without a counterpart is a failure of the other side, counted below.
        pairs.extend(others.remove(&row.index).map(|other| Pair::new(row, other)));
    }
    let failed = |failures: &[Failure]| failures.iter().map(|f| f.index).collect::<std::collections::BTreeSet<_>>();
    let (failed_a, failed_b) = (failed(&a.collected.failures), failed(&b.collected.failures));
    let only = |failed_under, failures: Vec<Failure>, elsewhere: &std::collections::BTreeSet<u64>| {
        let alone = failures.into_iter().filter(|failure| !elsewhere.contains(&failure.index));
        alone.map(|failure| OneSided { failed_under, failure }).collect::<Vec<_>>()
    };
    let mut one_sided = only(0, a.collected.failures, &failed_b);
    one_sided.extend(only(1, b.collected.failures, &failed_a));
    Comparison {
        same_neighbour: same_neighbour(&pairs),
        failed_under_both: failed_a.intersection(&failed_b).count() as u64,
        pairs,
        one_sided,
        wall,
        differences,
    }
}

impl Pair {
    fn new(a: CollectedRow, b: CollectedRow) -> Self {
        let (cosine, relative_error) = (cosine(&a.vector, &b.vector), relative_error(&a.vector, &b.vector));
        Self { id: a.id, cosine, relative_error, vectors: [a.vector, b.vector] }
    }
}

fn differences(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> Vec<(String, String, String)> {
    let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let value = |map: &BTreeMap<String, String>, name| map.get(name).cloned().unwrap_or_else(|| "-".to_owned());
    let pairs = names.into_iter().map(|name| (name.clone(), value(a, name), value(b, name)));
    pairs.filter(|(_, a, b)| a != b).collect()
}

/// Returns the cosine of the angle between two vectors, -1..=1; NaN if one of them is zero.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Computes max |a − b| ÷ max |b|.
pub fn relative_error(a: &[f32], b: &[f32]) -> f64 {
    let difference = a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - f64::from(b)).abs());
    // `f64::max` would drop a NaN.
    let largest = difference.fold(0.0, |max: f64, d| if d > max || d.is_nan() { d } else { max });
    largest / b.iter().fold(f64::MIN_POSITIVE, |max, &b| max.max(f64::from(b).abs()))
}

/// Returns the index of each vector's nearest other vector by cosine; `None` for fewer than two vectors.
pub fn nearest_neighbours<V: AsRef<[f32]>>(vectors: &[V]) -> Option<Vec<usize>> {
    let unit: Vec<Vec<f64>> = vectors.iter().map(|vector| unit(vector.as_ref())).collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let nearest = |i: usize| {
        let others = (0..unit.len()).filter(|&j| j != i);
        others.max_by(|&a, &b| dot(&unit[i], &unit[a]).total_cmp(&dot(&unit[i], &unit[b])))
    };
    (0..unit.len()).map(nearest).collect::<Option<Vec<usize>>>().filter(|all| !all.is_empty())
}

/// Returns the share of vectors whose nearest other vector by cosine has the same label; `None` for fewer than two.
pub fn recall_at_1<V: AsRef<[f32]>, L: PartialEq>(vectors: &[V], labels: &[L]) -> Option<f64> {
    let nearest = nearest_neighbours(vectors)?;
    let hits = nearest.iter().zip(labels).filter(|&(&nearest, label)| labels[nearest] == *label).count();
    Some(hits as f64 / vectors.len() as f64)
}

fn same_neighbour(pairs: &[Pair]) -> Option<f64> {
    if pairs.len() < 3 {
        return None;
    }
    let side = |side: usize| nearest_neighbours(&pairs.iter().map(|pair| &pair.vectors[side]).collect::<Vec<_>>());
    let (a, b) = (side(0)?, side(1)?);
    Some(a.iter().zip(&b).filter(|(a, b)| a == b).count() as f64 / pairs.len() as f64)
}

fn unit(vector: &[f32]) -> Vec<f64> {
    let norm = vector.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt();
    vector.iter().map(|&v| f64::from(v) / norm).collect()
}

/// Returns the value below which a share `q` (0..=1) of `values` lies, by nearest rank. NaN sorts below every number,
/// so that it stays visible. `None` if there are no values.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.to_vec();
    let rank = |value: &f64| if value.is_nan() { f64::NEG_INFINITY } else { *value };
    sorted.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
    let at = (q.clamp(0.0, 1.0) * (sorted.len().max(1) - 1) as f64).round() as usize;
    sorted.get(at).copied()
}

#[cfg(test)]
mod tests {
    use foveate_core::Stage;

    use super::*;

    fn row(index: u64, vector: &[f32]) -> CollectedRow {
        CollectedRow { index, id: index.to_string(), vector: vector.to_vec() }
    }

    fn failure(index: u64) -> Failure {
        Failure { index, id: index.to_string(), stage: Stage::Decode, reason: "no".to_owned(), bytes: None }
    }

    fn side(rows: Vec<CollectedRow>, failures: Vec<Failure>, decoder: &str) -> Side {
        let fingerprint = BTreeMap::from([("decoder".to_owned(), decoder.to_owned())]);
        Side { dim: 2, fingerprint, wall: Duration::ZERO, collected: Collected { rows, failures } }
    }

    #[test]
    fn every_image_is_a_pair_or_one_sided_or_failed_twice() {
        let a = side(vec![row(0, &[1.0, 0.0]), row(1, &[0.0, 2.0])], vec![failure(2), failure(3)], "x");
        let b = side(vec![row(0, &[1.0, 0.0]), row(2, &[1.0, 1.0])], vec![failure(1), failure(3)], "y");
        let comparison = compare(a, b);
        let ids: Vec<&str> = comparison.pairs.iter().map(|pair| pair.id.as_str()).collect();
        let one_sided: Vec<(usize, u64)> =
            comparison.one_sided.iter().map(|one| (one.failed_under, one.failure.index)).collect();
        assert_eq!((ids, one_sided, comparison.failed_under_both), (vec!["0"], vec![(0, 2), (1, 1)], 1));
        assert_eq!(comparison.differences, [("decoder".to_owned(), "x".to_owned(), "y".to_owned())]);
    }

    #[test]
    fn angles_and_lengths_are_told_apart() {
        assert!((cosine(&[1.0, 0.0], &[3.0, 0.0]) - 1.0).abs() < 1e-15);
        assert!((cosine(&[1.0, 0.0], &[1.0, 1.0]) - 0.5_f64.sqrt()).abs() < 1e-7);
        assert_eq!(relative_error(&[1.0, 2.0], &[1.0, 4.0]), 0.5);
        assert!(cosine(&[0.0], &[1.0]).is_nan() && relative_error(&[f32::NAN], &[1.0]).is_nan());
    }

    #[test]
    fn recall_counts_nearest_neighbours_of_the_same_label() {
        let vectors = [vec![1.0, 0.0], vec![0.9, 0.1], vec![0.0, 1.0], vec![0.2, 0.8]];
        assert_eq!(recall_at_1(&vectors, &["a", "a", "b", "b"]), Some(1.0));
        assert_eq!(recall_at_1(&vectors, &["a", "a", "b", "c"]), Some(0.5));
        assert_eq!(recall_at_1(&vectors[..1], &["a"]), None);
    }

    #[test]
    fn quantiles_are_values_that_occur_and_show_nan() {
        let values = [0.5, 0.1, 0.9, 0.3];
        assert_eq!([0.0, 0.01, 1.0].map(|q| quantile(&values, q)), [Some(0.1), Some(0.1), Some(0.9)]);
        assert!(quantile(&[1.0, f64::NAN], 0.0).unwrap().is_nan());
        assert_eq!(quantile(&[], 0.5), None);
    }
}
