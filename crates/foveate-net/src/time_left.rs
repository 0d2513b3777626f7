//! A request's time, which runs only while the request waits for its server.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout};

/// The time that is left to a request.
#[derive(Debug)]
pub(crate) struct TimeLeft(Duration);

/// The time is over.
#[derive(Debug)]
pub(crate) struct TimeOver;

impl TimeLeft {
    pub(crate) fn new(time: Duration) -> Self {
        Self(time)
    }

    /// Returns true if none is left.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_zero()
    }

    /// Waits for `work`, for at most `most` and the time that is left.
    pub(crate) async fn spend<T>(&mut self, most: Duration, work: impl Future<Output = T>) -> Result<T, TimeOver> {
        let began = Instant::now();
        let done = timeout(self.0.min(most), work).await;
        self.0 = self.0.saturating_sub(began.elapsed());
        done.map_err(|_| TimeOver)
    }
}
