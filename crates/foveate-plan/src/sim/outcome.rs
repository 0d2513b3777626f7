//! The results of a simulated run.

use serde::{Deserialize, Serialize};

use crate::Place;

/// The results of a simulated run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimOutcome {
    /// Images stored, which are all images.
    pub images: u64,
    /// Seconds from the start to the last image stored.
    pub seconds: f64,
    /// Images ÷ seconds, start and end included.
    pub images_per_second: f64,
    /// Images per second of the middle half of the batches; equals `images_per_second` with fewer than 8 batches.
    pub steady_images_per_second: f64,
    /// All groups of threads, in pipeline order.
    pub stages: Vec<ThreadsUse>,
    /// All queues, in pipeline order.
    pub queues: Vec<QueueUse>,
    /// Core seconds in use ÷ available core seconds, 0..=1; `None` if cores are not shared.
    pub cores_utilization: Option<f64>,
    /// Each thread's spans, by place, thread and time, within the requested window.
    pub timeline: Vec<Span>,
}

/// A group of threads' activity, as fractions of its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadsUse {
    /// [`Place::name`].
    pub name: String,
    /// Number of threads.
    pub threads: u32,
    /// Working, 0..=1.
    pub utilization: f64,
    /// Blocked with a finished item because the next queue is full, 0..=1.
    pub blocked: f64,
    /// Idle without an item, 0..=1.
    pub starved: f64,
}

/// A queue's fill level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueUse {
    /// Its name.
    pub name: String,
    /// Most entries it can hold.
    pub capacity: u32,
    /// Entries that passed through.
    pub passed: u64,
    /// Mean entries over time.
    pub mean: f64,
    /// Most entries at any time.
    pub most: u32,
    /// `mean ÷ capacity`, 0..=1.
    pub occupancy: f64,
}

/// One image or batch on one thread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// The kind of threads.
    pub place: Place,
    /// The thread's index, from 0.
    pub thread: u32,
    /// Its start, in seconds.
    pub start: f64,
    /// Its end, in seconds.
    pub end: f64,
    /// The batch's number, from 0.
    pub batch: u64,
    /// The image's number, from 0; `None` for the forward and the writing of a whole batch.
    pub image: Option<u64>,
}

impl Span {
    /// Its lane in a figure: `reader 1`, `worker 3`, `encoder` (the second one is `encoder 2`), `writer`.
    pub fn lane(&self) -> String {
        let number = self.thread + 1;
        match (self.place, self.thread) {
            (Place::Reader, _) => format!("reader {number}"),
            (Place::Worker, _) => format!("worker {number}"),
            (Place::Encoder, 0) => "encoder".to_owned(),
            (Place::Encoder, _) => format!("encoder {number}"),
            (Place::Writer, _) => "writer".to_owned(),
        }
    }
}

/// Integrates a queue's length over time.
pub(crate) struct Gauge {
    capacity: u32,
    length: usize,
    since: f64,
    length_seconds: f64,
    most: usize,
    passed: u64,
}

impl Gauge {
    pub(crate) fn new(capacity: u32) -> Self {
        Self { capacity, length: 0, since: 0.0, length_seconds: 0.0, most: 0, passed: 0 }
    }

    pub(crate) fn holds(&mut self, now: f64, length: usize) {
        self.length_seconds += self.length as f64 * (now - self.since);
        (self.length, self.since, self.most) = (length, now, self.most.max(length));
    }

    pub(crate) fn passed(&mut self, now: f64, length: usize) {
        self.passed += 1;
        self.holds(now, length);
    }

    pub(crate) fn outcome(&mut self, name: &str, seconds: f64) -> QueueUse {
        self.holds(seconds, self.length);
        let mean = if seconds > 0.0 { self.length_seconds / seconds } else { 0.0 };
        QueueUse {
            name: name.to_owned(),
            capacity: self.capacity,
            passed: self.passed,
            mean,
            most: self.most as u32,
            occupancy: mean / f64::from(self.capacity),
        }
    }
}
