//! What surrounds the worker, and how many threads it has.

use std::time::Duration;

use foveate_photo_server::{Latency, LatencyError};

use crate::Setting;
use crate::bench::cells::Row;

/// What the worker has around it, and how many threads it may have.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Median and 99th percentile of the time until a photo begins to come.
    pub photos: (Duration, Duration),
    /// Median and 99th percentile of the time until a callback is taken.
    pub callbacks: (Duration, Duration),
    /// What the stub sleeps for a batch of any size.
    pub forward_sleep: Duration,
    /// Threads that download, from configuration 2 on.
    pub downloaders: usize,
    /// Threads that call back, from configuration 2 on.
    pub callers: usize,
    /// Most images of a batch in configuration 4.
    pub batch: usize,
}

impl Service {
    /// Photos after 50 ms (200 ms), callbacks after 20 ms (80 ms), a device that takes 5 ms, batches of 8.
    pub fn usual() -> Self {
        let ms = |median, p99| (Duration::from_millis(median), Duration::from_millis(p99));
        Self {
            photos: ms(50, 200),
            callbacks: ms(20, 80),
            forward_sleep: Duration::from_millis(5),
            downloaders: 16,
            callers: 8,
            batch: 8,
        }
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

/// How many threads there are for what; none leaves it to the next stage's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Configuration {
    pub(super) number: usize,
    pub(super) downloaders: usize,
    pub(super) workers: usize,
    pub(super) callers: usize,
    pub(super) batch: usize,
}

impl Configuration {
    pub(super) const COUNT: usize = 4;

    pub(super) fn all(base: &Setting, service: &Service) -> [Self; Self::COUNT] {
        let in_turn = Self { number: 1, downloaders: 0, workers: 0, callers: 0, batch: 1 };
        let (downloaders, callers) = (service.downloaders.max(1), service.callers.max(1));
        let io = Self { number: 2, downloaders, callers, ..in_turn };
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

    /// Messages that are held at once: one for each thread, and two batches, one to fill while the other is encoded. One
    /// thread that does everything takes one after the other.
    pub(super) fn held(self) -> usize {
        if self.number == 1 { 1 } else { self.downloaders + self.workers + self.callers + 2 * self.batch }
    }

    pub(super) fn columns(self) -> Row {
        Row::from([
            ("configuration", self.number.into()),
            ("change", self.change().into()),
            ("downloaders", self.downloaders.into()),
            ("workers", self.workers.into()),
            ("callers", self.callers.into()),
            ("batch", self.batch.into()),
        ])
    }
}

pub(super) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
