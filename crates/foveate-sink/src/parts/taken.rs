//! The items that a run has accepted, and the calls that may follow.

use std::sync::{Arc, Mutex};

use foveate_core::lock;

use crate::{Failure, Rows, SinkError};

/// Announces every step that changes the disk to a test, before the step, so that the test can see the state after a
/// crash there. Silent by default.
#[derive(Clone, Default)]
pub(crate) struct StepProbe(Option<Arc<Mutex<Probe>>>);

type Probe = dyn FnMut(&'static str) + Send;

impl StepProbe {
    /// Calls `probe` with the name of each step.
    #[cfg(feature = "conformance")]
    pub(crate) fn seen_by(probe: impl FnMut(&'static str) + Send + 'static) -> Self {
        Self(Some(Arc::new(Mutex::new(probe))))
    }

    /// Announces a step.
    pub(crate) fn step(&self, name: &'static str) {
        if let Some(probe) = &self.0 {
            lock(probe)(name);
        }
    }
}

impl std::fmt::Debug for StepProbe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("StepProbe").field(&self.0.is_some()).finish()
    }
}

/// Most bytes of one row's id and values: lengths have 32 bits, and Arrow's have 31.
const MOST_ROW_TEXT: usize = 1 << 30;

/// The items accepted so far, to refuse calls that do not follow from them.
#[derive(Clone, Debug)]
pub(crate) struct AcceptedItems {
    dim: usize,
    watermark: u64,
    /// Lowest index that may still be appended or recorded as failed.
    next_row: u64,
    next_failure: u64,
    /// Rows and failures accepted since the last commit.
    pending: u64,
    closed: bool,
}

impl AcceptedItems {
    /// Everything below `watermark`, and nothing else. A `closed` run (interrupted while finishing) accepts no more
    /// rows.
    pub(crate) fn up_to(watermark: u64, dim: usize, closed: bool) -> Self {
        Self { dim, watermark, next_row: watermark, next_failure: watermark, pending: 0, closed }
    }

    /// Checks that these rows, with values of this many `columns`, may come next.
    pub(crate) fn check_rows(&self, rows: &Rows<'_>, columns: usize) -> Result<(), SinkError> {
        let n = rows.index.len();
        let lengths = [rows.id.len(), rows.width.len(), rows.height.len(), rows.xxh3.len()];
        if lengths.iter().any(|&len| len != n) || rows.vectors.len() != n * self.dim {
            return Err(SinkError::Misuse(format!(
                "{n} rows of {} components come with {} vector components and columns of {lengths:?}",
                self.dim,
                rows.vectors.len()
            )));
        }
        if let Some(row) = (0..n).find(|&row| rows.values(row).len() != columns) {
            let values = rows.values(row).len();
            return Err(SinkError::Misuse(format!("a row has {values} values for {columns} columns")));
        }
        if let Some(row) = (0..n).find(|&row| rows.text_len(row) > MOST_ROW_TEXT) {
            return Err(SinkError::Misuse(format!("the text of one row has {} bytes", rows.text_len(row))));
        }
        self.check_order(rows.index.iter().copied(), self.next_row, "row")
    }

    /// Checks that these failures may come next.
    pub(crate) fn check_failures(&self, failures: &[Failure]) -> Result<(), SinkError> {
        self.check_order(failures.iter().map(|failure| failure.index), self.next_failure, "failure")
    }

    fn check_order(&self, indexes: impl Iterator<Item = u64>, lowest: u64, what: &str) -> Result<(), SinkError> {
        let mut lowest = lowest;
        for index in indexes {
            if index < lowest {
                return Err(SinkError::Misuse(format!(
                    "{what} {index} comes out of order: {lowest} is the lowest that may follow"
                )));
            }
            if self.closed {
                return Err(SinkError::Misuse(format!("{what} {index} comes after the run was finishing")));
            }
            lowest = index.saturating_add(1);
        }
        Ok(())
    }

    /// Checks that this watermark may be committed.
    pub(crate) fn check_watermark(&self, watermark: u64) -> Result<(), SinkError> {
        let lowest = self.watermark.max(self.next_row).max(self.next_failure);
        if watermark < lowest {
            return Err(SinkError::Misuse(format!("commit of {watermark}, but items below {lowest} were taken")));
        }
        Ok(())
    }

    /// Checks that the run may be finished.
    pub(crate) fn check_finish(&self) -> Result<(), SinkError> {
        match self.pending {
            0 => Ok(()),
            n => Err(SinkError::Misuse(format!("finish with {n} rows or failures not committed"))),
        }
    }

    /// Returns true if a commit of `watermark` has anything to make durable.
    pub(crate) fn is_news(&self, watermark: u64) -> bool {
        self.pending > 0 || watermark != self.watermark
    }

    /// Records accepted rows.
    pub(crate) fn rows(&mut self, rows: &Rows<'_>) {
        if let Some(&last) = rows.index.last() {
            self.next_row = last.saturating_add(1);
            self.pending += rows.index.len() as u64;
        }
    }

    /// Records accepted failures.
    pub(crate) fn failures(&mut self, failures: &[Failure]) {
        if let Some(last) = failures.last() {
            self.next_failure = last.index.saturating_add(1);
            self.pending += failures.len() as u64;
        }
    }

    /// Records a commit.
    pub(crate) fn commit(&mut self, watermark: u64) {
        self.watermark = watermark;
        self.pending = 0;
    }

    /// Records that the run is finishing.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }
}

/// A sink's life cycle, around the state of its open run.
#[derive(Debug)]
pub(crate) enum Phase<R> {
    /// Before `begin`.
    New,
    /// Between `begin` and `finish`.
    Open(Box<R>),
    /// After `finish`.
    Done,
    /// After an error that may have left files half-written.
    Broken,
}

impl<R> Phase<R> {
    /// Takes the open run out, leaving [`Broken`](Self::Broken) until it is put back; misuse if no run is open.
    pub(crate) fn take(&mut self, call: &str) -> Result<Box<R>, SinkError> {
        match std::mem::replace(self, Self::Broken) {
            Self::Open(run) => Ok(run),
            other => {
                let when = match &other {
                    Self::New => "before begin",
                    Self::Done => "after finish",
                    _ => "after an error",
                };
                *self = other;
                Err(SinkError::Misuse(format!("{call} {when}")))
            }
        }
    }

    /// Puts the run back, unless `result` is an error that may have left files half-written.
    pub(crate) fn put_back<T>(&mut self, run: Box<R>, result: Result<T, SinkError>) -> Result<T, SinkError> {
        if matches!(result, Ok(_) | Err(SinkError::Misuse(_))) {
            *self = Self::Open(run);
        }
        result
    }

    /// Misuse if a run was already begun.
    pub(crate) fn check_new(&self) -> Result<(), SinkError> {
        match self {
            Self::New => Ok(()),
            _ => Err(SinkError::Misuse("begin is called once".to_owned())),
        }
    }
}
