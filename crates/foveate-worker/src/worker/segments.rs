//! The sink beside, or instead of, callbacks: each segment is a complete output of its own.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foveate_pipeline::{Popped, Queue};
use foveate_sink::{Existing, Rows, RunManifest, SinkError, VectorSink, Watermark};

use super::{Core, Ticket};
use crate::{Embedding, Failure, Output, Stage};

/// Makes the sink of a segment of this name.
pub type SegmentOpener = Arc<dyn Fn(&str) -> Result<Box<dyn VectorSink>, SinkError> + Send + Sync>;

/// How vectors are written. A segment is published whole: nothing of it is visible before all of it is durable, and only
/// then are its messages acknowledged. Where a sink cannot write (a full disk, a folder that is away), rows are held until
/// it can, and no more messages are taken than may be held; a row that it cannot take when it can take others is its
/// message's failure.
#[derive(Clone)]
pub struct Segments {
    /// Makes the sinks.
    pub open: SegmentOpener,
    /// What each task's segments say of themselves; their width is filled in.
    pub manifests: BTreeMap<String, RunManifest>,
    /// This worker among others that write to the same place; segments are called `TASK-WORKER-NUMBER`.
    pub worker: String,
    /// Most rows of a segment.
    pub max_rows: usize,
    /// Longest time that a row waits to be published.
    pub max_age: Duration,
}

/// Looks that often whether something is due: a worker that waits for it publishes at once.
const MOMENT: Duration = Duration::from_millis(100);

/// A row to be written.
pub(super) struct Row {
    pub(super) ticket: Box<Ticket>,
    pub(super) embedding: Embedding,
}

/// A segment's rows have one task, and are of one width.
type Kind = (String, usize);

/// Rows that are not published yet.
struct Open {
    since: Instant,
    rows: Vec<Row>,
    /// How often they could not be, and not to be tried before.
    failed: u32,
    again: Instant,
}

struct Writer<'a> {
    core: &'a Core,
    segments: &'a Segments,
    number: u64,
    /// Whether anything could be written so far.
    has_written: bool,
}

/// Writes until the queue is closed, and what is left then.
pub(super) fn write(core: &Core, segments: &Segments, rows: &Queue<Row>) {
    let watch = core.watch("sink");
    let mut writer = Writer { core, segments, number: 0, has_written: false };
    let mut open: BTreeMap<Kind, Open> = BTreeMap::new();
    loop {
        match rows.pop_until(Instant::now() + MOMENT) {
            Popped::Entry(row) => {
                let kind = (row.ticket.task.clone(), row.embedding.vector.len());
                open.entry(kind).or_insert_with(Open::new).rows.push(row);
            }
            Popped::TimedOut => {}
            Popped::Closed => break,
        }
        let now = core.waits_for(open.values().map(|open| open.rows.len()).sum());
        for (kind, open) in open.iter_mut().filter(|(_, open)| open.is_due(segments, now)) {
            let busy = watch.busy();
            writer.publish_some(kind, open);
            drop(busy);
        }
        open.retain(|_, open| !open.rows.is_empty());
    }
    for (kind, mut open) in open {
        writer.publish_some(&kind, &mut open);
    }
}

impl Open {
    fn new() -> Self {
        let now = Instant::now();
        Self { since: now, rows: Vec::new(), failed: 0, again: now }
    }

    fn is_due(&self, segments: &Segments, now: bool) -> bool {
        let is_full = self.rows.len() >= segments.max_rows || self.since.elapsed() >= segments.max_age;
        (now || is_full) && Instant::now() >= self.again
    }
}

impl Writer<'_> {
    /// Publishes a segment's worth; what cannot be written yet is tried again later.
    fn publish_some(&mut self, (task, _): &Kind, open: &mut Open) {
        let rest = open.rows.split_off(open.rows.len().min(self.segments.max_rows));
        let mut left = self.publish(task, std::mem::take(&mut open.rows));
        open.failed = if left.is_empty() { 0 } else { open.failed + 1 };
        if open.failed > 0 {
            open.again = Instant::now() + self.core.options.reconnect.after(open.failed, None);
        }
        left.extend(rest);
        open.rows = left;
    }

    /// Publishes these rows. Those that cannot be written for now are given back.
    fn publish(&mut self, task: &str, rows: Vec<Row>) -> Vec<Row> {
        // What is somebody else's by now is theirs to write.
        let mut rows: Vec<Row> = rows.into_iter().filter(|row| row.ticket.hold.is_held()).collect();
        if rows.is_empty() {
            return rows;
        }
        self.number += 1;
        let name = format!("{task}-{}-{:06}", self.segments.worker, self.number);
        let Err(error) = write_segment(self.segments, task, &name, &rows) else {
            self.published(&name, rows);
            return Vec::new();
        };
        self.core.sink_works(Some(error.to_string()));
        match rows.len() {
            _ if is_outage(&error) => rows,
            // Where nothing can be written at all, it is hardly the row's fault.
            1 if !self.has_written => rows,
            1 => {
                let failure = Failure::permanent(Stage::Sink, error.to_string());
                rows.into_iter().for_each(|row| self.core.failed(*row.ticket, failure.clone()));
                Vec::new()
            }
            // One of them may be what it cannot take.
            n => {
                let others = rows.split_off(n / 2);
                let mut left = self.publish(task, rows);
                left.extend(self.publish(task, others));
                left
            }
        }
    }

    fn published(&mut self, name: &str, rows: Vec<Row>) {
        self.has_written = true;
        self.core.sink_works(None);
        tracing::info!(segment = name, rows = rows.len(), "published");
        self.core.metrics().rows.inc_by(rows.len() as u64);
        rows.into_iter().for_each(|Row { ticket, embedding }| self.core.stored(ticket, Output::Vector(embedding)));
    }
}

/// Whether the same rows may well be written later.
fn is_outage(error: &SinkError) -> bool {
    matches!(
        error,
        SinkError::Io { .. } | SinkError::NoSpace { .. } | SinkError::Locked(_) | SinkError::BadOutput { .. }
    )
}

fn write_segment(segments: &Segments, task: &str, name: &str, rows: &[Row]) -> Result<(), SinkError> {
    let written = catch_unwind(AssertUnwindSafe(|| write_rows(segments, task, name, rows)));
    written.unwrap_or_else(|_| Err(SinkError::Unsupported("it panicked; the log says where".to_owned())))
}

fn write_rows(segments: &Segments, task: &str, name: &str, rows: &[Row]) -> Result<(), SinkError> {
    let dim = rows.first().map_or(0, |row| row.embedding.vector.len());
    let manifest = RunManifest { dim, ..segments.manifests.get(task).cloned().unwrap_or_default() };
    let column = |of: fn(&Embedding) -> u32| rows.iter().map(|row| of(&row.embedding)).collect::<Vec<_>>();
    let mut sink = (segments.open)(name)?;
    sink.begin(&manifest, Existing::Refuse)?;
    sink.append(&Rows {
        index: &(0..rows.len() as u64).collect::<Vec<_>>(),
        id: &rows.iter().map(|row| row.ticket.id.clone()).collect::<Vec<_>>(),
        vectors: &rows.iter().flat_map(|row| row.embedding.vector.iter().copied()).collect::<Vec<_>>(),
        width: &column(|embedding| embedding.width),
        height: &column(|embedding| embedding.height),
        xxh3: &rows.iter().map(|row| row.embedding.xxh3).collect::<Vec<_>>(),
    })?;
    sink.commit(Watermark(rows.len() as u64))?;
    sink.finish().map(drop)
}
