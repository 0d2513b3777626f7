//! A worker's faults, for `/healthz` and `/readyz`.

use std::sync::Mutex;
use std::time::Duration;

use foveate_core::error_chain;
use foveate_queue::{JobQueue, QueueError};
use foveate_sink::SinkError;

use super::circuit_breaker::CircuitBreaker;
use super::refusals::Refusals;
use crate::{Outcome, Setting, lock};

pub(super) struct Health {
    /// What the worker's own settings refuse.
    pub(super) refusals: Refusals,
    breaker: Mutex<CircuitBreaker>,
    /// The fault of each queue's broker.
    brokers: Mutex<Vec<Option<String>>>,
    sink: Mutex<Option<String>>,
}

impl Health {
    /// The health of a worker on `queues` queues whose largest batch is `batch`.
    pub(super) fn new(queues: usize, batch: usize, remedy: fn(Setting) -> Option<&'static str>) -> Self {
        Self {
            refusals: Refusals::new(remedy),
            breaker: Mutex::new(CircuitBreaker::new(batch)),
            brokers: Mutex::new(vec![None; queues]),
            sink: Mutex::default(),
        }
    }

    /// Records the outcome of an image, and the `server` that it came from, if any.
    pub(super) fn record(&self, server: Option<&str>, outcome: &Outcome) {
        lock(&self.breaker).record(server, outcome);
    }

    /// The pause before the next probe, or `None` while messages may be received at any rate.
    pub(super) fn probe_interval(&self) -> Option<Duration> {
        self.refusals.probe_interval().or_else(|| lock(&self.breaker).probe_interval())
    }

    /// Records whether the broker of `queue`, which has this `index`, answers.
    pub(super) fn broker(&self, index: usize, queue: &dyn JobQueue, fault: Option<&QueueError>) {
        let known = &mut lock(&self.brokers)[index];
        match (fault, known.is_some()) {
            (Some(error), false) => tracing::error!(%error, "cannot receive messages"),
            (None, true) => tracing::info!(queue = queue.name(), "receives messages again"),
            _ => {}
        }
        *known = fault.map(ToString::to_string);
    }

    /// Records whether the sink writes.
    pub(super) fn sink(&self, fault: Option<&SinkError>) {
        let fault = fault.map(|error| error_chain(error));
        if let Some(error) = &fault {
            tracing::error!(%error, "cannot publish a segment; the worker retries");
        }
        *lock(&self.sink) = fault;
    }

    /// Says why the worker should be restarted.
    pub(super) fn live(&self) -> Result<(), String> {
        lock(&self.breaker).check_processing()
    }

    /// Says why the worker cannot work now.
    pub(super) fn ready(&self) -> Result<(), String> {
        lock(&self.breaker).check()?;
        self.refusals.check()?;
        let broker = lock(&self.brokers).iter().flatten().next().cloned();
        broker.or_else(|| lock(&self.sink).clone()).map_or(Ok(()), Err)
    }
}
