//! Segments: the sink, with or without callbacks. Each segment is a complete output of its own.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use foveate_core::error_chain;
use foveate_pipeline::{Popped, Queue};
use foveate_sink::{Existing, Rows, RunManifest, SinkError, VectorSink, Watermark};

use super::backoff::Backoff;
use super::callback::Caller;
use super::state::WorkerState;
use super::ticket::Ticket;
use crate::progress::ThreadProgress;
use crate::{Embedding, Failure, Output, Stage};

/// Opens the sink of a segment of this name.
pub type SegmentOpener = Arc<dyn Fn(&str) -> Result<Box<dyn VectorSink>, SinkError> + Send + Sync>;

/// The sink of vectors. A segment is published whole: nothing of it is visible before all of it is durable, and
/// only then are its messages acknowledged.
///
/// While a sink cannot write (a full disk, an unmounted folder), the worker holds the rows, retries, and receives no
/// more messages than its in-flight limit. A row that the sink refuses while it takes others fails its message.
#[derive(Clone)]
pub struct Segments {
    /// Opens the sinks.
    pub open: SegmentOpener,
    /// The manifest of each task's segments; the worker fills in their dimension.
    pub manifests: BTreeMap<String, RunManifest>,
    /// Names this worker among others that write to the same place; segments are called `TASK-WORKER-NUMBER`.
    pub worker: String,
    /// Most rows of a segment.
    pub max_rows: usize,
    /// Longest time that a row waits for its segment to be published. Rows wait for one of the two while the worker
    /// extends leases; otherwise a segment is also published when the worker can receive no more messages.
    pub max_age: Duration,
    /// True if the worker ends when its queues are empty: the last rows do not wait then.
    pub until_empty: bool,
}

/// The interval at which the writer looks for segments that are due.
const TICK: Duration = Duration::from_millis(100);

/// Collects rows into segments, publishes these, and passes their messages on to the callbacks.
pub(super) struct SegmentWriter {
    pub(super) state: Arc<WorkerState>,
    pub(super) segments: Segments,
    pub(super) rows: Queue<SegmentRow>,
    /// True if rows may wait because the leases of their messages are extended.
    pub(super) heartbeat: bool,
    /// Rows that wait for their segment's number or age.
    pub(super) waiting: AtomicUsize,
    /// The delay before a sink that cannot write is tried again.
    pub(super) retry: Backoff,
    pub(super) caller: Arc<Caller>,
    pub(super) progress: ThreadProgress,
}

/// A row to write.
pub(super) struct SegmentRow {
    ticket: Box<Ticket>,
    embedding: Embedding,
}

/// The task and the dimension, which all rows of a segment share.
type SegmentKey = (String, usize);

/// Rows that are not published yet.
struct OpenSegment {
    since: Instant,
    rows: Vec<SegmentRow>,
    /// Failed attempts in a row, and the earliest time of the next one.
    failed: u32,
    retry_at: Instant,
}

impl SegmentWriter {
    /// Takes a row, to be published with its segment.
    pub(super) fn store(&self, ticket: Box<Ticket>, embedding: Embedding) {
        // Refused once the worker has ended: the message has already been given back.
        let _ = self.rows.push(SegmentRow { ticket, embedding }, 0);
    }

    /// Writes segments until [`SegmentWriter::close`] is called, and what is left then.
    pub(super) fn run(&self) {
        let mut publisher = Publisher { writer: self, numbers: BTreeMap::new(), has_written: false };
        let mut open: BTreeMap<SegmentKey, OpenSegment> = BTreeMap::new();
        loop {
            match self.rows.pop_until(Instant::now() + TICK) {
                Popped::Entry(row) => {
                    let kind = (row.ticket.task.clone(), row.embedding.vector.len());
                    open.entry(kind).or_insert_with(OpenSegment::new).rows.push(row);
                }
                Popped::TimedOut => {}
                Popped::Closed => break,
            }
            let is_awaited = self.is_awaited(open.values().map(|open| open.rows.len()).sum());
            for (kind, open) in open.iter_mut().filter(|(_, open)| open.is_due(&self.segments, is_awaited)) {
                let _busy = self.progress.begin(1);
                publisher.publish_due(kind, open);
            }
            open.retain(|_, open| !open.rows.is_empty());
            // Rows that cannot be written do count towards the in-flight limit.
            let waiting = open.values().filter(|open| open.failed == 0).map(|open| open.rows.len()).sum();
            self.waiting.store(waiting, Relaxed);
        }
        open.iter_mut().for_each(|(kind, open)| publisher.publish_due(kind, open));
    }

    /// Ends [`SegmentWriter::run`].
    pub(super) fn close(&self) {
        self.rows.close();
    }

    /// Rows that wait for their segment's number or age, and leave room for other messages meanwhile.
    pub(super) fn stalled(&self) -> usize {
        if self.heartbeat { self.waiting.load(Relaxed) } else { 0 }
    }

    /// Returns true if publishing the waiting `rows` is almost all that the worker has left to do: it stops, its queues
    /// are empty and it ends then, or it can receive no more messages.
    fn is_awaited(&self, rows: usize) -> bool {
        let WorkerState { leases, idle, .. } = &*self.state;
        let held = leases.held();
        let limiter = leases.limiter();
        if self.state.is_stopping() {
            return held <= rows;
        }
        let is_idle = self.segments.until_empty && idle.iter().all(|idle| idle.load(Relaxed));
        let is_full = leases.is_full() || !self.heartbeat && held >= limiter.total();
        is_idle && held <= rows || is_full && held <= rows + limiter.largest_batch()
    }
}

impl OpenSegment {
    fn new() -> Self {
        let now = Instant::now();
        Self { since: now, rows: Vec::new(), failed: 0, retry_at: now }
    }

    fn is_due(&self, segments: &Segments, is_awaited: bool) -> bool {
        let is_full = self.rows.len() >= segments.max_rows || self.since.elapsed() >= segments.max_age;
        (is_awaited || is_full) && Instant::now() >= self.retry_at
    }
}

/// Publishes segments one by one.
struct Publisher<'a> {
    writer: &'a SegmentWriter,
    /// The number of each task's last segment. One that could not be written leaves its name to the next one, which
    /// replaces what is there: otherwise each attempt on a full disk would leave garbage that fills it further.
    numbers: BTreeMap<String, u64>,
    /// True if any segment could be written so far.
    has_written: bool,
}

impl Publisher<'_> {
    /// Publishes a segment's worth of rows; those that cannot be written for now stay open.
    fn publish_due(&mut self, (task, _): &SegmentKey, open: &mut OpenSegment) {
        let rest = open.rows.split_off(open.rows.len().min(self.writer.segments.max_rows));
        let mut left = self.publish(task, std::mem::take(&mut open.rows));
        open.failed = if left.is_empty() { 0 } else { open.failed + 1 };
        if open.failed > 0 {
            open.retry_at = Instant::now() + self.writer.retry.after(open.failed, None);
        }
        left.extend(rest);
        open.rows = left;
    }

    /// Publishes these rows. Returns those that cannot be written for now.
    fn publish(&mut self, task: &str, rows: Vec<SegmentRow>) -> Vec<SegmentRow> {
        // Another worker writes the rows whose leases have ended.
        let rows: Vec<SegmentRow> = rows.into_iter().filter(|row| row.ticket.hold.is_held()).collect();
        if rows.is_empty() {
            return rows;
        }
        let segments = &self.writer.segments;
        let number = self.numbers.get(task).unwrap_or(&0) + 1;
        let name = format!("{task}-{}-{number:06}", segments.worker);
        match write_segment(segments, task, &name, &rows) {
            Ok(()) => {
                self.numbers.insert(task.to_owned(), number);
                self.published(&name, rows);
                Vec::new()
            }
            Err(error) => self.failed(task, rows, &error),
        }
    }

    fn published(&mut self, name: &str, rows: Vec<SegmentRow>) {
        let writer = self.writer;
        self.has_written = true;
        writer.state.health.sink(None);
        tracing::info!(segment = name, rows = rows.len(), "published");
        writer.state.metrics.rows.inc_by(rows.len() as u64);
        rows.into_iter()
            .for_each(|SegmentRow { ticket, embedding }| writer.caller.deliver(ticket, &Output::Vector(embedding)));
    }

    /// Looks for the row that the sink refuses, if it is a row's fault. Returns the rows that cannot be written for
    /// now.
    fn failed(&mut self, task: &str, mut rows: Vec<SegmentRow>, error: &SinkError) -> Vec<SegmentRow> {
        self.writer.state.health.sink(Some(error));
        match rows.len() {
            _ if is_outage(error) => rows,
            // A sink that never wrote anything is more likely at fault than its first row.
            1 if !self.has_written => rows,
            1 => {
                let failure = Failure::permanent(Stage::Sink, error_chain(error));
                rows.into_iter().for_each(|row| self.writer.caller.fail(row.ticket, failure.clone()));
                Vec::new()
            }
            n => {
                let others = rows.split_off(n / 2);
                let mut left = self.publish(task, rows);
                left.extend(self.publish(task, others));
                left
            }
        }
    }
}

/// Returns true if the same rows can probably be written later.
fn is_outage(error: &SinkError) -> bool {
    matches!(
        error,
        SinkError::Io { .. } | SinkError::NoSpace { .. } | SinkError::Locked(_) | SinkError::BadOutput { .. }
    )
}

fn write_segment(segments: &Segments, task: &str, name: &str, rows: &[SegmentRow]) -> Result<(), SinkError> {
    let written = catch_unwind(AssertUnwindSafe(|| write_rows(segments, task, name, rows)));
    written.unwrap_or_else(|_| Err(SinkError::Unsupported("it panicked; see the log".to_owned())))
}

fn write_rows(segments: &Segments, task: &str, name: &str, rows: &[SegmentRow]) -> Result<(), SinkError> {
    let dim = rows.first().map_or(0, |row| row.embedding.vector.len());
    let manifest = RunManifest { dim, ..segments.manifests.get(task).cloned().unwrap_or_default() };
    let mut sink = (segments.open)(name)?;
    sink.begin(&manifest, Existing::Overwrite)?;
    sink.append(&Rows {
        index: &(0..rows.len() as u64).collect::<Vec<_>>(),
        id: &rows.iter().map(|row| row.ticket.id.clone()).collect::<Vec<_>>(),
        vectors: &rows.iter().flat_map(|row| row.embedding.vector.iter().copied()).collect::<Vec<_>>(),
        width: &rows.iter().map(|row| row.embedding.width).collect::<Vec<_>>(),
        height: &rows.iter().map(|row| row.embedding.height).collect::<Vec<_>>(),
        xxh3: &rows.iter().map(|row| row.embedding.xxh3).collect::<Vec<_>>(),
        columns: &[],
    })?;
    sink.commit(Watermark::from(rows.len() as u64))?;
    sink.finish().map(drop)
}
