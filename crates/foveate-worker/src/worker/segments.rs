//! The sink beside, or instead of, callbacks: each segment is a complete output of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foveate_pipeline::{Popped, Queue};
use foveate_sink::{Existing, Rows, RunManifest, SinkError, VectorSink, Watermark};

use super::{Core, Ticket};
use crate::{Embedding, Failure, Output};

/// Makes the sink of a segment of this name.
pub type SegmentOpener = Arc<dyn Fn(&str) -> Result<Box<dyn VectorSink>, SinkError> + Send + Sync>;

/// How vectors are written. A segment is published whole: nothing of it is visible before all of it is durable, and only
/// then are its messages acknowledged.
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

/// A row to be written.
pub(super) struct Row {
    pub(super) ticket: Box<Ticket>,
    pub(super) embedding: Embedding,
}

/// Rows of one task that are not written yet.
struct Open {
    since: Instant,
    rows: Vec<Row>,
}

/// Writes until the queue is closed, and what is left then.
pub(super) fn write(core: &Core, segments: &Segments, rows: &Queue<Row>) {
    let mut number = 0;
    let mut open: BTreeMap<String, Open> = BTreeMap::new();
    loop {
        let due = open.values().map(|open| open.since + segments.max_age).min();
        // Not longer than a moment: a worker that waits for it publishes at once.
        let moment = Instant::now() + Duration::from_millis(100);
        match rows.pop_until(due.map_or(moment, |due| due.min(moment))) {
            Popped::Entry(row) => {
                let task = row.ticket.task.clone();
                open.entry(task).or_insert_with(|| Open { since: Instant::now(), rows: Vec::new() }).rows.push(row);
            }
            Popped::TimedOut => {}
            Popped::Closed => break,
        }
        let waiting = open.values().map(|open| open.rows.len()).sum();
        let now = core.waits_for(waiting);
        let is_due =
            |open: &Open| now || open.rows.len() >= segments.max_rows || open.since.elapsed() >= segments.max_age;
        let ready: Vec<String> = open.iter().filter(|(_, open)| is_due(open)).map(|(task, _)| task.clone()).collect();
        for task in ready {
            let Some(Open { rows, .. }) = open.remove(&task) else { continue };
            number += 1;
            publish(core, segments, &task, number, rows);
        }
    }
    for (task, Open { rows, .. }) in open {
        number += 1;
        publish(core, segments, &task, number, rows);
    }
}

fn publish(core: &Core, segments: &Segments, task: &str, number: u64, rows: Vec<Row>) {
    // What is somebody else's by now is theirs to write.
    let rows: Vec<Row> = rows.into_iter().filter(|row| row.ticket.hold.is_held()).collect();
    if rows.is_empty() {
        return;
    }
    let name = format!("{task}-{}-{number:06}", segments.worker);
    let written = write_segment(segments, task, &name, &rows);
    core.sink_works(written.as_ref().err().map(ToString::to_string));
    match written {
        Ok(()) => {
            tracing::info!(segment = name, rows = rows.len(), "published");
            core.metrics().rows.inc_by(rows.len() as u64);
            rows.into_iter().for_each(|Row { ticket, embedding }| core.stored(ticket, Output::Vector(embedding)));
        }
        Err(error) => {
            let failure = Failure::transient("sink", error.to_string());
            rows.into_iter().for_each(|row| core.failed(*row.ticket, failure.clone()));
        }
    }
}

fn write_segment(segments: &Segments, task: &str, name: &str, rows: &[Row]) -> Result<(), SinkError> {
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
