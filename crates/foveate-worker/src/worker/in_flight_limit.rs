//! The in-flight limit: how many messages a worker may hold, so that it finishes them before their leases end.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock;

/// The limit on the messages that the worker holds.
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
    /// This many messages per queue.
    Fixed(usize),
}

/// The part of a lease that a message may spend waiting.
const SHARE: f64 = 0.5;
/// Number of intervals that are remembered.
const REMEMBERED: usize = 12;

/// Measures the rate at which messages are finished: the best interval of the last minute, because a worker without
/// work is not slow.
struct RateMeter {
    interval: Duration,
    state: Mutex<Intervals>,
}

struct Intervals {
    began: Instant,
    count: u64,
    past: VecDeque<f64>,
}

impl RateMeter {
    /// Rates are taken over a fraction of a `lease`, at most 5 seconds.
    fn new(lease: Duration) -> Self {
        let interval = (lease / 6).clamp(Duration::from_millis(100), Duration::from_secs(5));
        Self { interval, state: Mutex::new(Intervals { began: Instant::now(), count: 0, past: VecDeque::new() }) }
    }

    fn finished(&self) {
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
        // Intervals without a call had no message: they only age the past.
        let missed = (elapsed.as_secs_f64() / interval.as_secs_f64()) as usize - 1;
        self.past.push_back(self.count as f64 / interval.as_secs_f64());
        self.past.extend(std::iter::repeat_n(0.0, missed.min(REMEMBERED)));
        while self.past.len() > REMEMBERED {
            self.past.pop_front();
        }
        // Intervals in which nothing was finished say nothing about the rate.
        if self.past.iter().all(|&rate| rate == 0.0) {
            self.past.clear();
        }
        self.count = 0;
        self.began = Instant::now();
    }
}

/// The in-flight limits of the queues that share a worker.
pub(super) struct Limiter {
    limit: InFlightLimit,
    meter: RateMeter,
    /// The length of each queue's leases.
    leases: Vec<Duration>,
    /// The largest batch of any task.
    batch: usize,
    /// Most messages that the worker can hold: those in the engine, and rows that wait for their segment.
    most: usize,
}

impl Limiter {
    pub(super) fn new(limit: InFlightLimit, leases: Vec<Duration>, batch: usize, most: usize) -> Self {
        let shortest = leases.iter().min().copied().unwrap_or_default();
        Self { limit, meter: RateMeter::new(shortest), leases, batch, most }
    }

    /// Counts a finished message.
    pub(super) fn finished(&self) {
        self.meter.finished();
    }

    /// Most messages of one queue.
    pub(super) fn of_queue(&self, queue: usize) -> usize {
        let lease = self.leases[queue].as_secs_f64();
        let queues = self.leases.len();
        let by_rate = |rate: f64| (rate * lease * SHARE / queues as f64) as usize;
        let most = (self.most / queues).max(1);
        match self.limit {
            InFlightLimit::Fixed(messages) => messages.clamp(1, most),
            InFlightLimit::Rate(rate) => by_rate(rate).clamp(1, most),
            // Before the first measurement: one batch to prepare while another is processed.
            InFlightLimit::Measured => self.meter.rate().map_or(2 * self.batch, by_rate).max(self.batch).min(most),
        }
    }

    /// Most messages of all queues.
    pub(super) fn total(&self) -> usize {
        (0..self.leases.len()).map(|queue| self.of_queue(queue)).sum()
    }

    /// Most messages of all queues at any rate.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    pub(super) fn queues(&self) -> usize {
        self.leases.len()
    }

    pub(super) fn largest_batch(&self) -> usize {
        self.batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_rate_times_half_a_lease_shared_by_the_queues() {
        let limit = |limit, queues| Limiter::new(limit, vec![Duration::from_secs(30); queues], 8, 512).of_queue(0);
        assert_eq!(limit(InFlightLimit::Rate(20.0), 1), 300);
        assert_eq!(limit(InFlightLimit::Rate(20.0), 3), 100);
        assert_eq!(limit(InFlightLimit::Rate(0.01), 1), 1);
        assert_eq!(limit(InFlightLimit::Rate(1e9), 2), 256);
        assert_eq!(limit(InFlightLimit::Fixed(7), 1), 7);
        assert_eq!(limit(InFlightLimit::Measured, 1), 16, "before the first measurement");
    }

    #[test]
    fn the_rate_is_that_of_the_best_interval_and_idleness_does_not_lower_it() {
        let limiter = Limiter {
            meter: RateMeter::new(Duration::ZERO),
            ..Limiter::new(InFlightLimit::Measured, vec![Duration::from_secs(2)], 1, 10_000)
        };
        (0..50).for_each(|_| limiter.finished());
        std::thread::sleep(Duration::from_millis(350));
        assert_eq!(limiter.total(), 500, "50 in 0.1 s");
        (0..5).for_each(|_| limiter.finished());
        assert_eq!(limiter.total(), 500);
    }
}
