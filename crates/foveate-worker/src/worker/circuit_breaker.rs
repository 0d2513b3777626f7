//! The circuit breaker: distinguishes a worker that cannot work from messages that cannot be processed.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::{Failure, Outcome, Stage};

/// Failures of one unproven server that count towards opening the breaker.
const PER_UNPROVEN_SERVER: usize = 8;
/// Interval between probes while the breaker is open.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// The same while only unproven servers fail: they are probably down, and messages for other servers wait behind them.
const SHORT_PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// Proven servers that are remembered.
const REMEMBERED: usize = 4_096;

/// Counts transient failures since the last success and opens when there are too many. While it is open, the worker
/// takes one message per probe interval; one success closes it. Without it, a worker without a network or with a broken
/// device would use up the retries of every message in the queue.
/// A server is proven once it has delivered an image. Jobs may name any server, and thousands may name a dead one. So
/// once any server is proven, each unproven one adds at most [`PER_UNPROVEN_SERVER`] failures.
pub(super) struct CircuitBreaker {
    /// Transient failures since the last success.
    failures: usize,
    last: Option<Failure>,
    /// Whether the last failure was an unproven server's.
    last_was_unproven: bool,
    /// Failures that open the breaker.
    threshold: usize,
    proven: HashSet<String>,
    /// Failures of each unproven server since the last success.
    unproven: HashMap<String, usize>,
}

impl CircuitBreaker {
    /// A breaker for a worker whose largest batch is `batch`: it tolerates three failed batches.
    pub(super) fn new(batch: usize) -> Self {
        let threshold = 32.max(4 * batch);
        let (proven, unproven) = (HashSet::new(), HashMap::new());
        Self { failures: 0, last: None, last_was_unproven: false, threshold, proven, unproven }
    }

    fn is_open(&self) -> bool {
        self.failures >= self.threshold
    }

    /// The pause before the next probe, or `None` while the breaker is closed.
    pub(super) fn probe_interval(&self) -> Option<Duration> {
        self.is_open().then_some(if self.last_was_unproven { SHORT_PROBE_INTERVAL } else { PROBE_INTERVAL })
    }

    /// Says why the breaker is open.
    pub(super) fn check(&self) -> Result<(), String> {
        match &self.last {
            Some(failure) if self.is_open() => {
                Err(format!("the circuit breaker is open after {} failures; the last one is {failure}", self.failures))
            }
            _ => Ok(()),
        }
    }

    /// Says why the breaker is open if processing fails: a restart may mend a device, but not the network.
    pub(super) fn check_processing(&self) -> Result<(), String> {
        match &self.last {
            Some(failure) if failure.stage == Stage::Process => self.check(),
            _ => Ok(()),
        }
    }

    /// Records the outcome of an image, and the `server` that it came from, if any.
    pub(super) fn record(&mut self, server: Option<&str>, outcome: &Outcome) {
        match outcome {
            Ok(_) => self.succeeded(server),
            Err(failure) if failure.transient => self.failed(server, failure),
            Err(_) => {}
        }
    }

    fn succeeded(&mut self, server: Option<&str>) {
        self.failures = 0;
        self.unproven.clear();
        if let Some(server) = server.filter(|server| !self.proven.contains(*server) && self.proven.len() < REMEMBERED) {
            self.proven.insert(server.to_owned());
        }
    }

    fn failed(&mut self, server: Option<&str>, failure: &Failure) {
        let is_unproven = |server: &&str| !self.proven.is_empty() && !self.proven.contains(*server);
        let unproven = server.filter(is_unproven).filter(|_| failure.stage == Stage::Download);
        self.last_was_unproven = unproven.is_some();
        if let Some(server) = unproven.filter(|_| !self.is_open()) {
            let count = self.unproven.entry(server.to_owned()).or_default();
            *count += 1;
            if *count > PER_UNPROVEN_SERVER {
                return;
            }
        }
        self.failures += 1;
        self.last = Some(failure.clone());
        if self.failures == self.threshold {
            tracing::error!(failures = self.failures, %failure, "the circuit breaker opened; probing with single messages");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Output;

    fn fail(breaker: &mut CircuitBreaker, server: &str, stage: Stage, times: usize) {
        (0..times).for_each(|_| breaker.record(Some(server), &Err(Failure::transient(stage, "gone"))));
    }

    fn succeed(breaker: &mut CircuitBreaker, server: &str) {
        breaker.record(Some(server), &Ok(Output::Json(serde_json::Value::Null)));
    }

    #[test]
    fn without_a_proven_server_every_failed_download_counts() {
        let mut breaker = CircuitBreaker::new(1);
        breaker.record(Some("a:80"), &Err(Failure::permanent(Stage::Within("decode"), "no image")));
        fail(&mut breaker, "a:80", Stage::Download, 31);
        assert_eq!((breaker.is_open(), breaker.check()), (false, Ok(())));
        fail(&mut breaker, "a:80", Stage::Download, 1);
        let told = "the circuit breaker is open after 32 failures; the last one is download: gone";
        assert_eq!(breaker.check().unwrap_err(), told);
        assert_eq!(breaker.check_processing(), Ok(()));
        succeed(&mut breaker, "a:80");
        assert!(!breaker.is_open());
    }

    #[test]
    fn an_unproven_server_counts_a_few_times_and_a_proven_one_always() {
        let mut breaker = CircuitBreaker::new(1);
        succeed(&mut breaker, "proven:80");
        fail(&mut breaker, "dead:80", Stage::Download, 1_000);
        assert!(!breaker.is_open());
        (0..3).for_each(|i| fail(&mut breaker, &format!("dead{i}:80"), Stage::Download, 1_000));
        assert_eq!(breaker.probe_interval(), Some(SHORT_PROBE_INTERVAL), "four of them: it may be the network");
        succeed(&mut breaker, "proven:80");
        assert_eq!(breaker.probe_interval(), None);
        fail(&mut breaker, "proven:80", Stage::Download, 32);
        assert_eq!(breaker.probe_interval(), Some(PROBE_INTERVAL));
    }

    #[test]
    fn failed_processing_counts_whatever_the_server() {
        let mut breaker = CircuitBreaker::new(16);
        succeed(&mut breaker, "proven:80");
        fail(&mut breaker, "unproven:80", Stage::Process, 63);
        assert!(!breaker.is_open());
        fail(&mut breaker, "unproven:80", Stage::Process, 1);
        assert!(breaker.is_open() && breaker.check_processing().is_err());
    }
}
