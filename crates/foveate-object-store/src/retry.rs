//! Repeated attempts, later each time.

use std::time::Duration;

use tokio::time::Instant;

const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Attempts for one object: the waits between them take 15 to 30 seconds together.
const ATTEMPTS: u32 = 9;

/// The attempts for one request.
pub(crate) struct Attempts {
    made: u32,
    deadline: Option<Instant>,
}

impl Attempts {
    /// Attempts that end in `time`, if there is a limit.
    pub(crate) fn within(time: Option<Duration>) -> Self {
        Self { made: 0, deadline: time.map(|time| Instant::now() + time) }
    }

    /// The end of an attempt that may take `time`.
    pub(crate) fn end(&self, time: Duration) -> Instant {
        let end = Instant::now() + time;
        self.deadline.map_or(end, |deadline| deadline.min(end))
    }

    /// Waits before the next attempt; `false` if there is none.
    pub(crate) async fn wait(&mut self) -> bool {
        self.made += 1;
        let longest = FIRST_WAIT.saturating_mul(1 << self.made.min(16)).min(LONGEST_WAIT);
        let next = Instant::now() + longest.mul_f64(0.5 + fastrand::f64() / 2.0);
        if self.made >= ATTEMPTS || self.deadline.is_some_and(|deadline| next >= deadline) {
            return false;
        }
        tokio::time::sleep_until(next).await;
        true
    }
}
