//! Neighbours, duplicates and clusters of the caller's vectors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use foveate::pipeline::Cancel;
use foveate::search::{
    Classifier, ClusterOptions, Figure, Linkage, Metric, Neighbors, Search, SearchError, Vectors, groups as grouped,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyByteArray;

use crate::interrupt::interruptible;

/// Most neighbours that count for mAP@R.
const MOST: usize = 1000;

/// Vectors as the Python half hands them over: bytes of f32 in pieces, and the width.
pub(crate) struct SearchRows {
    data: Vec<f32>,
    dim: usize,
}

impl<'a, 'py> FromPyObject<'a, 'py> for SearchRows {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let (pieces, count, dim): (Bound<'_, PyAny>, usize, usize) = given.extract()?;
        let mut data = Vec::with_capacity(count * dim);
        for piece in pieces.try_iter()? {
            let piece: PyBackedBytes = piece?.extract()?;
            data.extend(piece.as_chunks().0.iter().map(|&bytes| f32::from_ne_bytes(bytes)));
        }
        Ok(Self { data, dim })
    }
}

impl SearchRows {
    fn vectors(&self, metric: Metric) -> Result<Vectors<'_>, SearchError> {
        Vectors::new(&self.data, self.dim.max(1), metric)
    }
}

/// Does `work`, and calls `progress` with the share that is done. Ctrl-C ends it.
fn search<T: Send + 'static>(
    py: Python<'_>,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(&Search<'_>) -> Result<T, SearchError> + Send + 'static,
) -> PyResult<T> {
    let cancel = Cancel::default();
    let cancelled = cancel.clone();
    let share = Arc::new(AtomicU64::new(0));
    let done = Arc::clone(&share);
    let run = move |_| {
        let usual = Search::default();
        work(&Search {
            threads: threads.unwrap_or(usual.threads),
            progress: &|share| done.store(share.to_bits(), Relaxed),
            is_cancelled: &|| cancelled.is_cancelled(),
            ..usual
        })
    };
    let tell = |share: f64| progress.as_ref().map_or(Ok(()), |progress| progress.call1(py, (share,)).map(drop));
    let patience = || Duration::from_secs(10);
    let found = interruptible(py, &cancel, patience, || tell(f64::from_bits(share.load(Relaxed))), run)?;
    tell(1.0)?;
    found.map_err(|error| PyValueError::new_err(error.to_string()))
}

fn metric(name: &str) -> PyResult<Metric> {
    match name {
        "cosine" => Ok(Metric::Cosine),
        "dot" => Ok(Metric::Dot),
        _ => Err(PyValueError::new_err(format!("metric='{name}'; it is 'cosine' or 'dot'"))),
    }
}

/// Numbers as bytes, which numpy takes over.
fn bytes<T: Copy, const N: usize>(
    py: Python<'_>,
    numbers: &[T],
    of: impl Fn(T) -> [u8; N],
) -> PyResult<Py<PyByteArray>> {
    let made = PyByteArray::new_with(py, numbers.len() * N, |bytes| {
        bytes.as_chunks_mut().0.iter_mut().zip(numbers).for_each(|(bytes, &number)| *bytes = of(number));
        Ok(())
    });
    made.map(Bound::unbind)
}

/// Rows and scores of neighbours, `[n, k]`, i64 and f32: −1 and NaN where there are no more.
type Table = (Py<PyByteArray>, Py<PyByteArray>);

#[pyfunction]
#[pyo3(signature = (vectors, queries, k, metric_name, threads, progress))]
pub(crate) fn neighbors(
    py: Python<'_>,
    vectors: SearchRows,
    queries: Option<SearchRows>,
    k: usize,
    metric_name: &str,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Table> {
    let metric = metric(metric_name)?;
    let (rows, scores) = search(py, threads, progress, move |search| {
        let all = vectors.vectors(metric)?;
        let found = match &queries {
            Some(queries) => search.nearest(&queries.vectors(metric)?, &all, k)?,
            None => search.neighbors(&all, k)?,
        };
        Ok(table(&found, k))
    })?;
    Ok((bytes(py, &rows, i64::to_ne_bytes)?, bytes(py, &scores, f32::to_ne_bytes)?))
}

fn table(found: &Neighbors, k: usize) -> (Vec<i64>, Vec<f32>) {
    let mut rows = Vec::with_capacity(found.len() * k);
    let mut scores = Vec::with_capacity(found.len() * k);
    for query in 0..found.len() {
        let end = rows.len() + k;
        for (row, score) in found.of(query) {
            rows.push(i64::from(row));
            scores.push(score as f32);
        }
        rows.resize(end, -1);
        scores.resize(end, f32::NAN);
    }
    (rows, scores)
}

/// Pairs, `[n, 2]` i64, with their scores, f32, and groups of rows; none with other vectors.
type Duplicates = (Py<PyByteArray>, Py<PyByteArray>, Vec<Vec<u32>>);

#[pyfunction]
#[pyo3(signature = (vectors, against, threshold, metric_name, complete, threads, progress))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn duplicates(
    py: Python<'_>,
    vectors: SearchRows,
    against: Option<SearchRows>,
    threshold: f64,
    metric_name: &str,
    complete: bool,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Duplicates> {
    let metric = metric(metric_name)?;
    let linkage = if complete { Linkage::Complete } else { Linkage::Single };
    let (pairs, groups) = search(py, threads, progress, move |search| {
        let all = vectors.vectors(metric)?;
        match &against {
            Some(others) => Ok((search.pairs_with(&all, &others.vectors(metric)?, threshold)?.pairs, Vec::new())),
            None => {
                let pairs = search.pairs(&all, threshold)?.pairs;
                let groups = grouped(&pairs, linkage);
                Ok((pairs, groups))
            }
        }
    })?;
    let rows: Vec<i64> = pairs.iter().flat_map(|pair| [pair.row, pair.other]).map(i64::from).collect();
    let scores: Vec<f32> = pairs.iter().map(|pair| pair.score as f32).collect();
    Ok((bytes(py, &rows, i64::to_ne_bytes)?, bytes(py, &scores, f32::to_ne_bytes)?, groups))
}

/// The cluster of each row, i64 (−1 for rows that are not finite), the cosine to its centre, f32, and the centres, f32.
type Clusters = (Py<PyByteArray>, Py<PyByteArray>, Py<PyByteArray>);

#[pyfunction]
#[pyo3(signature = (vectors, k, threads, progress))]
pub(crate) fn clusters(
    py: Python<'_>,
    vectors: SearchRows,
    k: usize,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Clusters> {
    let (rows, centres) = search(py, threads, progress, move |search| {
        let all = vectors.vectors(Metric::Cosine)?;
        let found = search.clusters(&all, &ClusterOptions { k, ..ClusterOptions::default() })?;
        let rows: Vec<_> = (0..all.len()).map(|row| found.of(row)).collect();
        Ok((rows, found.centres().to_vec()))
    })?;
    let numbers: Vec<i64> = rows.iter().map(|row| row.map_or(-1, |(cluster, _)| i64::from(cluster))).collect();
    let scores: Vec<f32> = rows.iter().map(|row| row.map_or(f32::NAN, |(_, score)| score as f32)).collect();
    let numbers = bytes(py, &numbers, i64::to_ne_bytes)?;
    Ok((numbers, bytes(py, &scores, f32::to_ne_bytes)?, bytes(py, &centres, f32::to_ne_bytes)?))
}

/// The best classes of each row, `[n, k]` i64, with their probabilities and cosines, f32: −1 and NaN where there are no
/// more.
type Classes = (Py<PyByteArray>, Py<PyByteArray>, Py<PyByteArray>);

#[pyfunction]
#[pyo3(signature = (vectors, classes, logits, k, threshold, threads, progress))]
#[allow(clippy::too_many_arguments, reason = "those of the Python function")]
pub(crate) fn classify(
    py: Python<'_>,
    vectors: SearchRows,
    classes: SearchRows,
    logits: (f64, Option<f64>),
    k: usize,
    threshold: f64,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Classes> {
    let classifier = Classifier { scale: logits.0, bias: logits.1, k, threshold };
    let found = search(py, threads, progress, move |search| {
        search.classify(&vectors.vectors(Metric::Cosine)?, &classes.vectors(Metric::Cosine)?, &classifier)
    })?;
    let mut rows = Vec::with_capacity(found.len() * k);
    let mut probabilities = Vec::with_capacity(found.len() * k);
    let mut scores = Vec::with_capacity(found.len() * k);
    for (number, found) in (1..).zip(&found) {
        for one in found.iter().flatten() {
            rows.push(i64::from(one.class));
            probabilities.push(one.probability);
            scores.push(one.score);
        }
        rows.resize(number * k, -1);
        probabilities.resize(number * k, f32::NAN);
        scores.resize(number * k, f32::NAN);
    }
    let rows = bytes(py, &rows, i64::to_ne_bytes)?;
    Ok((rows, bytes(py, &probabilities, f32::to_ne_bytes)?, bytes(py, &scores, f32::to_ne_bytes)?))
}

/// Rows that are spread out, in the order of choice.
#[pyfunction]
#[pyo3(signature = (vectors, n, threads, progress))]
pub(crate) fn spread_out(
    py: Python<'_>,
    vectors: SearchRows,
    n: usize,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<u32>> {
    let chosen = search(py, threads, progress, move |search| search.spread_out(&vectors.vectors(Metric::Cosine)?, n))?;
    Ok(chosen.into_iter().map(|(row, _)| row).collect())
}

/// Figures by name, each with its mean and the ends of its 95 % interval.
#[pyfunction]
#[pyo3(signature = (vectors, labels, threads, progress))]
pub(crate) fn evaluate(
    py: Python<'_>,
    vectors: SearchRows,
    labels: Vec<Option<u32>>,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<(&'static str, f64, f64, f64)>> {
    let found =
        search(py, threads, progress, move |search| search.evaluate(&vectors.vectors(Metric::Cosine)?, &labels, MOST))?;
    let figures = found.figures().into_iter();
    Ok(figures.map(|(name, Figure { mean, low, high, .. })| (name, *mean, *low, *high)).collect())
}
