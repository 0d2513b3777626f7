//! The work of each stage, one unit at a time. The threaded and the sequential engine call the same code.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use foveate_core::{Stage, error_chain};
use foveate_profile::{StageProfiler, Trace};
use foveate_sink::{Failure, VectorSink, Watermark};
use foveate_source::{Fetch, Item};

use crate::batch::Encoded;
use crate::{Config, RunError};

/// Counters for a progress display, updated during the run.
#[derive(Debug, Default)]
pub struct Progress {
    /// Index of the first item of this session; earlier ones were settled by earlier sessions.
    pub first: AtomicU64,
    /// Vectors handed to the sink in this session.
    pub rows: AtomicU64,
    /// Failures handed to the sink in this session.
    pub failures: AtomicU64,
    /// Encoded bytes read in this session.
    pub bytes: AtomicU64,
    /// Items below this index are durable.
    pub committed: AtomicU64,
}

/// Times `work` as one span of `stage`.
pub(crate) fn timed<T>(profiler: &StageProfiler, stage: Stage, work: impl FnOnce() -> T) -> T {
    let _span = profiler.span(stage_number(stage));
    work()
}

/// The parts of encoding, as the encoder reports them.
pub(crate) const ENCODE_PARTS: [&str; 3] = ["copy-in", "forward", "copy-out"];

/// Creates a profiler of all stages, followed by the parts of encoding.
pub(crate) fn profiler(trace: Option<Trace>) -> StageProfiler {
    let names = Stage::ALL.map(Stage::name).into_iter().chain(ENCODE_PARTS);
    match trace {
        Some(trace) => StageProfiler::traced(names, trace),
        None => StageProfiler::new(names),
    }
}

pub(crate) fn stage_number(stage: Stage) -> usize {
    Stage::ALL.iter().position(|&s| s == stage).unwrap_or(0)
}

pub(crate) fn failure(item: &Item, stage: Stage, reason: &str, bytes: Option<u64>) -> Failure {
    // One line per failure, whatever a library's message contains.
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    Failure { index: item.index, id: item.id.clone(), stage, reason, bytes }
}

/// Reads `item` into `bytes`, or returns the fault.
pub(crate) fn read(
    fetch: &mut dyn Fetch,
    item: &Item,
    bytes: &mut Vec<u8>,
    profiler: &StageProfiler,
    progress: &Progress,
) -> Result<(), Failure> {
    if let Some(reason) = &item.fault {
        return Err(failure(item, Stage::List, reason, None));
    }
    let read = timed(profiler, Stage::Read, || fetch.fetch(item, bytes));
    progress.bytes.fetch_add(bytes.len() as u64, Relaxed);
    read.map_err(|error| failure(item, Stage::Read, &error_chain(&error), None))
}

/// Stores batches in order, commits at intervals, and enforces the failure policy.
pub(crate) struct Writer<'a> {
    sink: &'a mut (dyn VectorSink + 'static),
    config: &'a Config,
    profiler: &'a StageProfiler,
    progress: &'a Progress,
    last_commit: Instant,
    first: u64,
    stored: u64,
    committed: u64,
    pub(crate) rows: u64,
    pub(crate) failures: u64,
    last_failure: Option<Failure>,
}

impl<'a> Writer<'a> {
    /// Creates a writer that continues at item `first`.
    pub(crate) fn new(
        sink: &'a mut (dyn VectorSink + 'static),
        config: &'a Config,
        profiler: &'a StageProfiler,
        progress: &'a Progress,
        first: u64,
    ) -> Self {
        progress.first.store(first, Relaxed);
        progress.committed.store(first, Relaxed);
        Self {
            sink,
            config,
            profiler,
            progress,
            last_commit: Instant::now(),
            first,
            stored: first,
            committed: first,
            rows: 0,
            failures: 0,
            last_failure: None,
        }
    }

    pub(crate) fn write(&mut self, encoded: &Encoded, at_end: bool) -> Result<(), RunError> {
        self.check_failures(encoded, at_end)?;
        timed(self.profiler, Stage::Write, || -> Result<(), RunError> {
            if encoded.len() > 0 {
                self.sink.append(&encoded.rows())?;
            }
            if !encoded.failures.is_empty() {
                self.sink.fail(&encoded.failures)?;
            }
            Ok(())
        })?;
        self.stored = encoded.end;
        self.rows += encoded.len() as u64;
        self.failures += encoded.failures.len() as u64;
        self.progress.rows.store(self.rows, Relaxed);
        self.progress.failures.store(self.failures, Relaxed);
        if self.last_commit.elapsed() >= self.config.commit_every { self.commit() } else { Ok(()) }
    }

    /// Makes everything written so far durable.
    pub(crate) fn commit(&mut self) -> Result<(), RunError> {
        if self.stored > self.committed {
            timed(self.profiler, Stage::Write, || self.sink.commit(Watermark(self.stored)))?;
            self.committed = self.stored;
            self.progress.committed.store(self.committed, Relaxed);
        }
        self.last_commit = Instant::now();
        Ok(())
    }

    /// Items below this index are durable.
    pub(crate) fn committed(&self) -> u64 {
        self.committed
    }

    fn check_failures(&mut self, encoded: &Encoded, at_end: bool) -> Result<(), RunError> {
        if let Some(last) = encoded.failures.last() {
            self.last_failure = Some(last.clone());
        }
        let Some(last) = &self.last_failure else { return Ok(()) };
        let failed = self.failures + encoded.failures.len() as u64;
        let seen = encoded.end - self.first;
        let limit = self.config.failures;
        if limit.is_exceeded(failed, seen, at_end) {
            return Err(RunError::TooManyFailures { failed, seen, limit, last: Box::new(last.clone()) });
        }
        Ok(())
    }
}
