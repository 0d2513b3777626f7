//! Messages of threads without the interpreter's lock, kept until the thread with it passes them on.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use foveate::core::lock;
use foveate::model::{self, OpenOptions};
use foveate::pipeline::Progress;
use pyo3::prelude::*;

/// Time between two calls of a progress function.
const INTERVAL: Duration = Duration::from_millis(500);

/// A call's downloads, notices and counts.
#[derive(Default)]
pub(crate) struct Said {
    waiting: Mutex<WaitingWords>,
    pub(crate) counts: Progress,
    /// Once the inputs are listed: their number, if it is known.
    inputs: OnceLock<Option<u64>>,
}

#[derive(Default)]
struct WaitingWords {
    /// Of each file, the bytes that are stored and their total.
    downloads: Vec<(String, u64, Option<u64>)>,
    notices: Vec<String>,
}

impl Said {
    /// Options that say here how a model's download goes.
    pub(crate) fn model_options(&self) -> OpenOptions<'_> {
        OpenOptions { progress: self, ..OpenOptions::from_env() }
    }

    /// Says that the run begins, with so many inputs.
    pub(crate) fn begin(&self, inputs: Option<u64>) {
        let _ = self.inputs.set(inputs);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.inputs.get().is_some()
    }
}

impl model::Progress for Said {
    fn bytes(&self, file: &str, done: u64, total: Option<u64>) {
        let mut waiting = lock(&self.waiting);
        waiting.downloads.retain(|(earlier, ..)| earlier != file);
        waiting.downloads.push((file.to_owned(), done, total));
    }

    fn notice(&self, message: &str) {
        lock(&self.waiting).notices.push(message.to_owned());
    }
}

/// Says in Python what a call says.
pub(crate) struct Teller {
    said: Arc<Said>,
    /// Called with the inputs settled, their number if it is known, and the failures.
    progress: Option<Py<PyAny>>,
    last: Mutex<Option<Instant>>,
}

impl Teller {
    pub(crate) fn new(progress: Option<Py<PyAny>>) -> Self {
        Self { said: Arc::default(), progress, last: Mutex::default() }
    }

    pub(crate) fn said(&self) -> Arc<Said> {
        Arc::clone(&self.said)
    }

    /// Passes on what is new. Progress is due once the inputs are known, and at intervals.
    pub(crate) fn pass_on(&self, py: Python<'_>) -> PyResult<()> {
        let WaitingWords { downloads, notices } = std::mem::take(&mut *lock(&self.said.waiting));
        if !downloads.is_empty() || !notices.is_empty() {
            let module = py.import("foveate._said")?;
            downloads.into_iter().try_for_each(|download| module.call_method1("download", download).map(drop))?;
            notices.into_iter().try_for_each(|notice| module.call_method1("notice", (notice,)).map(drop))?;
        }
        let is_due = self.said.has_begun() && lock(&self.last).is_none_or(|last| last.elapsed() >= INTERVAL);
        if is_due { self.tell(py) } else { Ok(()) }
    }

    /// Passes on all that is left.
    pub(crate) fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.pass_on(py)?;
        self.tell(py)
    }

    fn tell(&self, py: Python<'_>) -> PyResult<()> {
        *lock(&self.last) = Some(Instant::now());
        let Some(progress) = &self.progress else { return Ok(()) };
        let Said { counts, inputs, .. } = &*self.said;
        let failures = counts.failures.load(Relaxed);
        let settled = counts.first.load(Relaxed) + counts.rows.load(Relaxed) + failures;
        progress.call1(py, (settled, inputs.get().copied().flatten(), failures)).map(drop)
    }
}
