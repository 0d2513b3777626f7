//! How many messages a worker may hold: what it can finish before their leases end.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock;

/// How the bound on the messages that a worker holds is found.
///
/// A worker that finishes `r` messages a second finishes one that it takes behind `n` others after `n / r` seconds. That
/// has to be less than the lease `L` (half of it, so that a slow minute does no harm), or the message is delivered to
/// somebody else while it still waits here. With `q` queues that share the worker, each gets its part:
/// `r · L / (2 · q)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// By the rate that is measured: at least one batch, at most what the engine may have under way.
    Measured,
    /// By this rate, in messages a second.
    Rate(f64),
    /// This many of each queue.
    Fixed(usize),
}

/// Share of a lease that waiting may take.
const SHARE: f64 = 0.5;
/// Intervals that are remembered.
const REMEMBERED: usize = 12;

/// Measures how many messages a second are finished, at best in the last minute: a worker that has nothing to do is not
/// slow.
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

impl Bound {
    /// Messages of one queue that may be held: of `queues` that share the worker, with leases of `lease`; `batch` is the
    /// largest batch, `most` what the engine may have under way.
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
    fn the_bound_is_rate_times_half_a_lease_shared_by_the_queues() {
        let meter = Meter::new(Duration::from_secs(30));
        let bound = |bound: Bound, queues| bound.of_queue(&meter, Duration::from_secs(30), queues, 8, 512);
        assert_eq!(bound(Bound::Rate(20.0), 1), 300);
        assert_eq!(bound(Bound::Rate(20.0), 3), 100);
        assert_eq!(bound(Bound::Rate(0.01), 1), 1);
        assert_eq!(bound(Bound::Rate(1e9), 2), 256);
        assert_eq!(bound(Bound::Fixed(7), 1), 7);
        assert_eq!(bound(Bound::Measured, 1), 16, "before anything was measured");
    }

    #[test]
    fn the_rate_is_that_of_the_best_interval_and_idleness_does_not_lower_it() {
        let meter = Meter::new(Duration::ZERO);
        let bound = || Bound::Measured.of_queue(&meter, Duration::from_secs(2), 1, 1, 10_000);
        (0..50).for_each(|_| meter.finished());
        std::thread::sleep(Duration::from_millis(350));
        assert_eq!(bound(), 500, "50 in 0.1 s");
        (0..5).for_each(|_| meter.finished());
        assert_eq!(bound(), 500);
    }
}
