//! The work of each stage, one unit at a time. The threaded and the sequential engine call the same code.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use bytes::Bytes;
use foveate_core::{FaultScope, Stage, error_chain};
use foveate_profile::{StageProfiler, Trace};
use foveate_sink::{Failure, InputRecord, Rows, Stamp, VectorSink, Watermark};
use foveate_source::{Content, Fetch, Item};

use crate::batch::{Encoded, ItemOutcome, SeenInput};
use crate::lookers::{stamp_of, stamp_of_version};
use crate::recall::{Contents, Recalled};
use crate::{Config, FailurePolicy, RunError};

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
    /// Images of this session whose gray was [clipped](foveate_decode::Decoded::is_clipped).
    pub clipped: AtomicU64,
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
    const LONGEST: usize = 1000;
    // One line per failure of bounded length: a library's message may have line breaks and name a long path.
    let mut reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    if reason.len() > LONGEST {
        reason.truncate(reason.floor_char_boundary(LONGEST));
        reason.push('…');
    }
    Failure { index: item.index, id: item.id.clone(), stage, reason, bytes }
}

/// The result of reading an item.
pub(crate) struct Readout {
    /// Taken before the bytes were read.
    pub(crate) stamp: Stamp,
    /// Its bytes, if the source delivered them.
    pub(crate) delivered: Option<Bytes>,
    /// Its outcome, if it has no bytes.
    pub(crate) fault: Option<ItemOutcome>,
}

/// Fetches an item's bytes into `fetched`, unless the source delivered them.
pub(crate) fn read(
    fetch: &mut dyn Fetch,
    item: &Item,
    content: Content,
    fetched: &mut Vec<u8>,
    profiler: &StageProfiler,
    progress: &Progress,
) -> Result<Readout, RunError> {
    if let Some(reason) = &item.fault {
        let seen = SeenInput { place: item.place, ..SeenInput::default() };
        let fault = ItemOutcome::Failed(failure(item, Stage::List, reason, None), seen);
        return Ok(Readout { stamp: Stamp::default(), delivered: None, fault: Some(fault) });
    }
    let (stamp, read) = match content {
        Content::Unread => {
            timed(profiler, Stage::Read, || (stamp_of(fetch, item), fetch.fetch(item, fetched).map(|()| None)))
        }
        Content::Read(bytes) => (stamp_of_version(&item.version), Ok(Some(bytes))),
        Content::Failed(error) => (stamp_of_version(&item.version), Err(error)),
    };
    let error = match read {
        Ok(delivered) => {
            let bytes = delivered.as_ref().map_or(fetched.len(), Bytes::len);
            progress.bytes.fetch_add(bytes as u64, Relaxed);
            return Ok(Readout { stamp, delivered, fault: None });
        }
        Err(error) => error,
    };
    let failure = failure(item, Stage::Read, &error_chain(&error), None);
    let seen = SeenInput { place: item.place, stamp, ..SeenInput::default() };
    let fault = match error.scope() {
        FaultScope::Run => return Err(error.into()),
        FaultScope::Item if error.suspects_storage() => ItemOutcome::Unreadable(failure, seen),
        FaultScope::Item => ItemOutcome::Failed(failure, seen),
    };
    Ok(Readout { stamp, delivered: None, fault: Some(fault) })
}

/// Kinds of failures that are counted.
const MOST_KINDS: usize = 1000;

/// Stores batches in order, commits at intervals, and stops a run whose items fail.
pub(crate) struct BatchWriter<'a> {
    sink: &'a mut (dyn VectorSink + 'static),
    config: &'a Config,
    contents: Option<&'a Contents>,
    profiler: &'a StageProfiler,
    progress: &'a Progress,
    last_commit: Instant,
    /// The output's first item.
    start: u64,
    /// Failures that earlier sessions stored.
    earlier_failures: u64,
    stored: Watermark,
    committed: u64,
    pub(crate) rows: u64,
    pub(crate) failures: u64,
    pub(crate) failure_kinds: BTreeMap<String, u64>,
    pub(crate) recalled: Recalled,
    /// The latest items, if none of them could be read. They are stored once a later item shows that their storage is
    /// there.
    streak: Vec<Failure>,
    /// The record of these items.
    streak_inputs: Vec<InputRecord>,
    last_failure: Option<Failure>,
}

impl<'a> BatchWriter<'a> {
    /// Creates a writer for an output that begins at item `start` and has come as far as `done`.
    ///
    /// # Errors
    /// If earlier sessions stored more failures than the policy allows.
    pub(crate) fn new(
        sink: &'a mut (dyn VectorSink + 'static),
        config: &'a Config,
        contents: Option<&'a Contents>,
        profiler: &'a StageProfiler,
        progress: &'a Progress,
        start: u64,
        done: Watermark,
    ) -> Result<Self, RunError> {
        let first = done.index;
        progress.first.store(first, Relaxed);
        progress.committed.store(first, Relaxed);
        let mut writer = Self {
            earlier_failures: sink.failures()?,
            sink,
            config,
            contents,
            profiler,
            progress,
            last_commit: Instant::now(),
            start,
            stored: done,
            committed: first,
            rows: 0,
            failures: 0,
            failure_kinds: BTreeMap::new(),
            recalled: Recalled::default(),
            streak: Vec::new(),
            streak_inputs: Vec::new(),
            last_failure: None,
        };
        writer.check_failures(&[], first, false)?;
        Ok(writer)
    }

    pub(crate) fn write(&mut self, encoded: &mut Encoded) -> Result<(), RunError> {
        encoded.complete(self.contents, &mut self.recalled)?;
        self.check_failures(&encoded.failures, encoded.end, false)?;
        let (failures, streak) = encoded.failures_and_streak(!self.streak.is_empty());
        let settled = encoded.inputs.len() - streak.len();
        let (inputs, later) = encoded.inputs.split_at(settled);
        if encoded.len() + failures.len() > 0 {
            self.end_streak()?;
            self.store(Some(encoded.rows()), failures, inputs)?;
        }
        self.streak.extend_from_slice(streak);
        self.streak_inputs.extend_from_slice(later);
        self.stored.index = encoded.end - self.streak.len() as u64;
        if let Some(last) = inputs.last() {
            self.stored.place = last.place;
        }
        self.check_streak()?;
        if self.last_commit.elapsed() >= self.config.commit_every { self.commit() } else { Ok(()) }
    }

    fn store(&mut self, rows: Option<Rows<'_>>, failures: &[Failure], inputs: &[InputRecord]) -> Result<(), RunError> {
        let rows = rows.filter(|rows| !rows.index.is_empty());
        timed(self.profiler, Stage::Write, || -> Result<(), RunError> {
            if let Some(rows) = &rows {
                self.sink.append(rows)?;
            }
            if !failures.is_empty() {
                self.sink.fail(failures)?;
            }
            Ok(self.sink.record(inputs)?)
        })?;
        self.rows += rows.map_or(0, |rows| rows.index.len() as u64);
        self.failures += failures.len() as u64;
        for failure in failures {
            let kind = format!("{}: {}", failure.stage, failure.kind());
            if self.failure_kinds.len() < MOST_KINDS || self.failure_kinds.contains_key(&kind) {
                *self.failure_kinds.entry(kind).or_default() += 1;
            }
        }
        self.progress.rows.store(self.rows, Relaxed);
        self.progress.failures.store(self.failures, Relaxed);
        Ok(())
    }

    /// Stores the items that could not be read: each is at fault itself.
    fn end_streak(&mut self) -> Result<(), RunError> {
        let streak = std::mem::take(&mut self.streak);
        let inputs = std::mem::take(&mut self.streak_inputs);
        if streak.is_empty() { Ok(()) } else { self.store(None, &streak, &inputs) }
    }

    /// Handles the end of the source at item `end`. Stores the items of a streak if they `are_at_fault`, because no
    /// other item follows that shows it. Otherwise returns the first of them; they are to be read again.
    pub(crate) fn end(&mut self, end: u64, are_at_fault: bool) -> Result<Option<(Watermark, Failure)>, RunError> {
        if self.stored.index + self.streak.len() as u64 != end {
            return Ok(None); // cancelled before
        }
        self.check_failures(&[], end, true)?;
        let Some(&InputRecord { place, .. }) = self.streak_inputs.last() else { return Ok(None) };
        if !are_at_fault && self.config.max_unreadable.is_some() {
            let first = self.streak.first().cloned();
            return Ok(first.map(|first| (self.stored, first)));
        }
        self.end_streak()?;
        self.stored = Watermark { index: end, place };
        Ok(None)
    }

    /// Forgets the streak, because its items are read again.
    pub(crate) fn forget_streak(&mut self) {
        self.streak.clear();
        self.streak_inputs.clear();
    }

    /// Makes everything stored so far durable.
    pub(crate) fn commit(&mut self) -> Result<(), RunError> {
        if self.stored.index > self.committed {
            timed(self.profiler, Stage::Write, || self.sink.commit(self.stored))?;
            self.committed = self.stored.index;
            self.progress.committed.store(self.committed, Relaxed);
        }
        self.last_commit = Instant::now();
        Ok(())
    }

    /// Items below this index are durable.
    pub(crate) fn committed(&self) -> u64 {
        self.committed
    }

    /// Judges the output up to item `end`, with its latest `failures`.
    fn check_failures(&mut self, failures: &[Failure], end: u64, at_end: bool) -> Result<(), RunError> {
        let limit = self.config.failures;
        let before = self.earlier_failures + self.failures + self.streak.len() as u64;
        let one_too_many = match limit {
            FailurePolicy::Count(most) => most.checked_sub(before).and_then(|at| failures.get(at as usize)),
            _ => None,
        };
        if let Some(last) = one_too_many.or(failures.last()) {
            self.last_failure = Some(last.clone());
        }
        let failed = before + failures.len() as u64;
        let seen = end - self.start;
        if limit.is_exceeded(failed, seen, at_end) {
            let last = self.last_failure.take().map(Box::new);
            return Err(RunError::TooManyFailures { failed, seen, limit, last });
        }
        Ok(())
    }

    fn check_streak(&self) -> Result<(), RunError> {
        let count = self.streak.iter().filter(|failure| failure.stage != Stage::List).count() as u64;
        match (self.streak.first(), self.config.max_unreadable) {
            (Some(first), Some(most)) if count > most => {
                Err(RunError::Unreadable { count, first: Box::new(first.clone()) })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_of_bounded_length() {
        let told = |reason: &str| failure(&Item::default(), Stage::Read, reason, None).reason;
        assert_eq!(told("no such\n  host\r\n"), "no such host");
        let long = told(&"ż".repeat(85_000));
        assert_eq!((long.chars().count(), long.chars().last()), (501, Some('…')));
    }
}
