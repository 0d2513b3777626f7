use std::cell::Cell;
use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use foveate::cli::EmbedCall;
use foveate::pipeline::{Cancel, Progress};
use pyo3::prelude::*;

use crate::errors::{failed, usage};
use crate::interrupt::interruptible;

/// Time between two calls of `progress`.
const INTERVAL: Duration = Duration::from_millis(500);

/// Runs `foveate embed` with these arguments. Calls `progress(settled, inputs, failures)` at intervals; `inputs` is
/// `None` until it is known. Returns what `--json` prints.
#[pyfunction]
#[pyo3(signature = (args, progress=None))]
pub(crate) fn embed(py: Python<'_>, args: Vec<OsString>, progress: Option<Bound<'_, PyAny>>) -> PyResult<String> {
    let call = EmbedCall::parse(args).map_err(usage)?;
    let (cancel, counts, inputs) = (Cancel::default(), Progress::default(), AtomicU64::new(u64::MAX));
    let tell = || {
        let Some(progress) = &progress else { return Ok(()) };
        let failures = counts.failures.load(Relaxed);
        let settled = counts.first.load(Relaxed) + counts.rows.load(Relaxed) + failures;
        let inputs = Some(inputs.load(Relaxed)).filter(|&inputs| inputs != u64::MAX);
        progress.call1((settled, inputs, failures)).map(drop)
    };
    let last = Cell::new(Instant::now());
    let each = || {
        if last.get().elapsed() < INTERVAL {
            return Ok(());
        }
        last.set(Instant::now());
        tell()
    };
    let run = || call.run(&cancel, &counts, |items| inputs.store(items.count().unwrap_or(u64::MAX), Relaxed));
    let summary = interruptible(py, &cancel, each, run)?.map_err(failed)?;
    tell()?;
    Ok(summary)
}
