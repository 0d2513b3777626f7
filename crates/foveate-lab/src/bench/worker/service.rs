//! The worker's environment and its number of threads.

use std::time::Duration;

use foveate_photo_server::{Latency, LatencyError};

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
    /// Maximum batch size in configuration 4.
    pub batch: usize,
}

impl Service {
    /// Returns photos after 50 ms (200 ms), callbacks after 20 ms (80 ms), a device that takes 5 + 0.9·n ms
    /// for n images, and batches of 8.
    pub fn usual() -> Self {
        let ms = |median, p99| (Duration::from_millis(median), Duration::from_millis(p99));
        Self {
            photos: ms(50, 200),
            callbacks: ms(20, 80),
            forward_sleeps: [Duration::from_millis(5), Duration::from_micros(900)],
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

/// The number of threads for each stage. A stage without threads runs on those of the next stage.
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

    /// Returns the number of messages held at once: one for each thread, and two batches, one to fill while the other
    /// is encoded. A single thread for everything holds one message.
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
