//! The in-flight limit: how many messages a worker may hold, so that it finishes them before their leases end.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock;

/// How the worker limits the messages that it holds.
///
/// A message that is received behind `n` others by a worker that finishes `r` messages a second is done after `n / r`
/// seconds. If that exceeds the lease `L`, the broker delivers the message to another worker while it still waits here.
/// The limit keeps `n / r` below half a lease, which leaves a margin for a slow minute. `q` queues share it evenly, so
/// each has `r · L / (2 · q)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InFlightLimit {
    /// From the measured rate: at least one batch, at most what the engine may have in flight.
    Measured,
    /// From this rate, in messages per second.
    Rate(f64),
    /// This many messages of each queue.
    Fixed(usize),
}

/// Share of a lease that a message may spend waiting.
const SHARE: f64 = 0.5;
/// Intervals that are remembered.
const REMEMBERED: usize = 12;

/// Measures the rate at which messages are finished: the best interval of the last minute, because a worker without work
/// is not slow.
pub(crate) struct Meter {
    interval: Duration,
    state: Mutex<Intervals>,
}

struct Intervals {
    began: Instant,
    count: u64,
    past: VecDeque<f64>,
}

impl Meter {
    /// Rates are taken over a fraction of a `lease`, at most 5 seconds.
    pub(crate) fn new(lease: Duration) -> Self {
        let interval = (lease / 6).clamp(Duration::from_millis(100), Duration::from_secs(5));
        Self { interval, state: Mutex::new(Intervals { began: Instant::now(), count: 0, past: VecDeque::new() }) }
    }

    pub(crate) fn finished(&self) {
        let mut state = lock(&self.state);
        state.roll(self.interval);
        state.count += 1;
    }

    fn rate(&self) -> Option<f64> {
        let mut state = lock(&self.state);
        state.roll(self.interval);
        state.past.iter().copied().reduce(f64::max)
    }
}

impl Intervals {
    fn roll(&mut self, interval: Duration) {
        let elapsed = self.began.elapsed();
        if elapsed < interval {
            return;
        }
        // A long time without a call was one without a message: it only makes the past older.
        let missed = (elapsed.as_secs_f64() / interval.as_secs_f64()) as usize - 1;
        self.past.push_back(self.count as f64 / interval.as_secs_f64());
        self.past.extend(std::iter::repeat_n(0.0, missed.min(REMEMBERED)));
        while self.past.len() > REMEMBERED {
            self.past.pop_front();
        }
        // An interval in which nothing was finished says nothing about the rate.
        if self.past.iter().all(|&rate| rate == 0.0) {
            self.past.clear();
        }
        self.count = 0;
        self.began = Instant::now();
    }
}

impl InFlightLimit {
    /// The limit of one of the `queues` that share the worker, with leases of `lease`; `batch` is the largest batch, `most`
    /// what the engine may have in flight.
    pub(crate) fn of_queue(self, meter: &Meter, lease: Duration, queues: usize, batch: usize, most: usize) -> usize {
        let by_rate = |rate: f64| (rate * lease.as_secs_f64() * SHARE / queues as f64) as usize;
        let most = (most / queues).max(1);
        match self {
            Self::Fixed(messages) => messages.clamp(1, most),
            Self::Rate(rate) => by_rate(rate).clamp(1, most),
            // Before anything is known: two batches, one to prepare while the other is processed.
            Self::Measured => meter.rate().map_or(2 * batch, by_rate).max(batch).min(most),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_rate_times_half_a_lease_shared_by_the_queues() {
        let meter = Meter::new(Duration::from_secs(30));
        let limit = |limit: InFlightLimit, queues| limit.of_queue(&meter, Duration::from_secs(30), queues, 8, 512);
        assert_eq!(limit(InFlightLimit::Rate(20.0), 1), 300);
        assert_eq!(limit(InFlightLimit::Rate(20.0), 3), 100);
        assert_eq!(limit(InFlightLimit::Rate(0.01), 1), 1);
        assert_eq!(limit(InFlightLimit::Rate(1e9), 2), 256);
        assert_eq!(limit(InFlightLimit::Fixed(7), 1), 7);
        assert_eq!(limit(InFlightLimit::Measured, 1), 16, "before anything was measured");
    }

    #[test]
    fn the_rate_is_that_of_the_best_interval_and_idleness_does_not_lower_it() {
        let meter = Meter::new(Duration::ZERO);
        let limit = || InFlightLimit::Measured.of_queue(&meter, Duration::from_secs(2), 1, 1, 10_000);
        (0..50).for_each(|_| meter.finished());
        std::thread::sleep(Duration::from_millis(350));
        assert_eq!(limit(), 500, "50 in 0.1 s");
        (0..5).for_each(|_| meter.finished());
        assert_eq!(limit(), 500);
    }
}
