//! What a simulated run was like.

use serde::{Deserialize, Serialize};

use crate::Place;

/// What a simulated run was like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimOutcome {
    /// Images stored: all of them.
    pub images: u64,
    /// Seconds from the start to the last image stored.
    pub seconds: f64,
    /// Images ÷ seconds, start and end included.
    pub images_per_second: f64,
    /// Images per second of the middle half of the batches; as `images_per_second` when there are fewer than 8.
    pub steady_images_per_second: f64,
    /// Each group of threads, in pipeline order.
    pub stages: Vec<ThreadsUse>,
    /// Each queue, in pipeline order.
    pub queues: Vec<QueueUse>,
    /// Core seconds in use ÷ core seconds there were, 0..=1; `None` when cores are not shared.
    pub cores_utilization: Option<f64>,
    /// What each thread did, by place, thread and time, as far as it was asked for.
    pub timeline: Vec<Span>,
}

/// What a group of threads did, as shares of its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadsUse {
    /// [`Place::name`].
    pub name: String,
    /// How many.
    pub threads: u32,
    /// Working, 0..=1.
    pub utilization: f64,
    /// Done with something that the next queue had no room for, 0..=1.
    pub blocked: f64,
    /// With nothing to do, 0..=1.
    pub starved: f64,
}

/// How full a queue was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueUse {
    /// Its name.
    pub name: String,
    /// Most entries it can hold.
    pub capacity: u32,
    /// Entries that passed.
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
    /// Which threads.
    pub place: Place,
    /// Which of them, from 0.
    pub thread: u32,
    /// Second at which it began.
    pub start: f64,
    /// Second at which it was done.
    pub end: f64,
    /// Number of the batch, from 0.
    pub batch: u64,
    /// Number of the image, from 0; `None` for the forward and the writing of a whole batch.
    pub image: Option<u64>,
}

impl Span {
    /// The lane of a figure that it belongs to: `reader 1`, `worker 3`, `encoder` (the second one is `encoder 2`),
    /// `writer`.
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
