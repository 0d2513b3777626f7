//! The worker's environment and its number of threads.

use std::time::Duration;

use foveate_net::photo_server::{Latency, LatencyError};

use crate::Setting;
use crate::bench::cells::Row;

/// The worker's environment, and its maximum number of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Median and 99th percentile of the time to a photo's first byte.
    pub photos: (Duration, Duration),
    /// Median and 99th percentile of a callback's response time.
    pub callbacks: (Duration, Duration),
    /// Times that the stub sleeps for a batch, and for each image of it.
    pub forward_sleeps: [Duration; 2],
    /// Threads that download, from configuration 2 on.
    pub downloaders: usize,
    /// Threads that call back, from configuration 2 on.
    pub callers: usize,
    /// Messages that the worker holds at most, from configuration 2 on.
    pub queue_size: usize,
    /// Maximum batch size in configuration 4.
    pub batch: usize,
}

impl Service {
    /// Returns photos after 50 ms (200 ms), callbacks after 20 ms (80 ms), and the threads, the queue's size and the
    /// batches of a published worker (`docs/reproduction.md`). The stub takes 13.6 + 34·n ms for n images, as that
    /// worker's device did: 21 images a second alone, 28 in batches of 8.
    pub fn usual() -> Self {
        Self {
            photos: (Duration::from_millis(50), Duration::from_millis(200)),
            callbacks: (Duration::from_millis(20), Duration::from_millis(80)),
            forward_sleeps: [Duration::from_micros(13_600), Duration::from_millis(34)],
            downloaders: 10,
            callers: 3,
            queue_size: 300,
            batch: 8,
        }
    }

    /// Returns the same with a queue that holds no more than keeps every thread at work. A worker that holds 300
    /// messages takes half a minute on a CPU until they are done.
    pub fn quick() -> Self {
        Self { queue_size: 32, ..Self::usual() }
    }

    pub(super) fn check(&self) -> Result<(), LatencyError> {
        [self.photos, self.callbacks].into_iter().try_for_each(|(median, p99)| Latency::new(median, p99).map(drop))
    }

    pub(super) fn columns(&self) -> Row {
        Row::from([
            ("photo_p50_ms", ms(self.photos.0).into()),
            ("photo_p99_ms", ms(self.photos.1).into()),
            ("callback_p50_ms", ms(self.callbacks.0).into()),
            ("callback_p99_ms", ms(self.callbacks.1).into()),
        ])
    }
}

/// The number of threads for each stage. A stage without threads runs on those of the next stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServiceConfiguration {
    pub(super) number: usize,
    pub(super) downloaders: usize,
    pub(super) workers: usize,
    pub(super) callers: usize,
    pub(super) batch: usize,
    /// Messages that the worker holds at most.
    pub(super) queue_size: usize,
}

impl ServiceConfiguration {
    pub(super) const COUNT: usize = 4;

    pub(super) fn all(base: &Setting, service: &Service) -> [Self; Self::COUNT] {
        let in_turn = Self { number: 1, downloaders: 0, workers: 0, callers: 0, batch: 1, queue_size: 1 };
        let downloaders = service.downloaders.max(1);
        let callers = service.callers.max(1);
        let io = Self { number: 2, downloaders, callers, queue_size: service.queue_size.max(1), ..in_turn };
        let cpu = Self { number: 3, workers: base.workers.max(1), ..io };
        [in_turn, io, cpu, Self { number: 4, batch: service.batch.max(1), ..cpu }]
    }

    pub(super) fn change(self) -> String {
        match self.number {
            1 => "everything in turn".to_owned(),
            2 => "+ threads for downloads and callbacks".to_owned(),
            3 => "+ threads that decode and resize".to_owned(),
            _ => format!("+ batches of up to {}", self.batch),
        }
    }

    pub(super) fn columns(self) -> Row {
        Row::from([
            ("configuration", self.number.into()),
            ("change", self.change().into()),
            ("downloaders", self.downloaders.into()),
            ("workers", self.workers.into()),
            ("callers", self.callers.into()),
            ("queue_size", self.queue_size.into()),
            ("batch", self.batch.into()),
        ])
    }
}

pub(super) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Returns the path of a request's photo. The server has the set's photos and repeats them. It draws a latency for each
/// path, which depends on the seed alone: every configuration meets the same latencies in the same order.
pub(super) fn photo(request: usize) -> String {
    format!("/photo/{request}")
}
