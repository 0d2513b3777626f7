//! A worker's faults, for `/healthz` and `/readyz`.

use std::sync::Mutex;
use std::time::Duration;

use foveate_core::error_chain;
use foveate_queue::{JobQueue, QueueError};
use foveate_sink::SinkError;

use super::circuit_breaker::{Cause, CircuitBreakers};
use super::refusals::Refusals;
use super::ticket::Ticket;
use crate::metrics::Metrics;
use crate::{Failure, Outcome, Setting, Stage, lock};

pub(super) struct Health {
    /// What the worker's own settings refuse.
    pub(super) refusals: Refusals,
    breakers: Mutex<CircuitBreakers>,
    /// The fault of each queue's broker.
    brokers: Mutex<Vec<Option<String>>>,
    sink: Mutex<Option<String>>,
}

impl Health {
    /// The health of a worker on `queues` queues whose largest batch is `batch`.
    pub(super) fn new(queues: usize, batch: usize, remedy: fn(Setting) -> Option<&'static str>) -> Self {
        Self {
            refusals: Refusals::new(remedy),
            breakers: Mutex::new(CircuitBreakers::new(batch)),
            brokers: Mutex::new(vec![None; queues]),
            sink: Mutex::default(),
        }
    }

    /// Records what the outcome of a message's image says about its source and about the device.
    pub(super) fn record(&self, ticket: &Ticket, outcome: &Outcome) {
        let (mut breakers, key) = (lock(&self.breakers), &ticket.id);
        let source = ticket.source.iter();
        match outcome {
            Ok(_) => {
                source.for_each(|source| breakers.succeeded(source));
                breakers.succeeded(&Cause::Device);
            }
            Err(failure) if failure.untried || matches!(failure.stage, Stage::Cancelled | Stage::Shutdown) => {}
            Err(failure) if failure.stage == Stage::Download => {
                breakers.network(ticket.site.as_deref(), failure);
                source.filter(|_| failure.transient).for_each(|source| breakers.failed(source, key, failure));
            }
            Err(failure) => {
                // The image was downloaded, whatever became of it.
                source.for_each(|source| breakers.succeeded(source));
                if failure.transient {
                    breakers.failed(&Cause::Device, key, failure);
                }
            }
        }
    }

    /// Records whether a message's callback was answered.
    pub(super) fn record_callback(&self, ticket: &Ticket, failure: Option<&Failure>) {
        let Some(receiver) = ticket.receiver() else { return };
        let mut breakers = lock(&self.breakers);
        failure.into_iter().for_each(|failure| breakers.network(None, failure));
        match failure.filter(|failure| failure.transient) {
            Some(failure) => breakers.failed(&receiver, &ticket.id, failure),
            None => breakers.succeeded(&receiver),
        }
    }

    /// Checks whether a cause may be used now; otherwise, how long to wait.
    pub(super) fn admit(&self, cause: &Cause) -> Result<(), Duration> {
        lock(&self.breakers).admit(cause)
    }

    /// Returns true if a message failed for a cause of the operator's that fails for many messages.
    pub(super) fn is_outage(&self, ticket: &Ticket, failure: &Failure) -> bool {
        if self.is_network_outage(failure) {
            return true;
        }
        let breakers = lock(&self.breakers);
        let is_open = |cause: &Cause| cause.is_operators() && breakers.is_open(cause);
        match failure.stage {
            Stage::Download => ticket.source.as_ref().is_some_and(is_open),
            Stage::Callback => ticket.receiver().as_ref().is_some_and(is_open),
            _ => breakers.is_open(&Cause::Device),
        }
    }

    /// Returns true if a download failed because of the network, as those from other sites do.
    pub(super) fn is_network_outage(&self, failure: &Failure) -> bool {
        failure.stage == Stage::Download
            && failure.reached == Some(false)
            && lock(&self.breakers).is_open(&Cause::Network)
    }

    /// Updates the metrics.
    pub(super) fn measure(&self, metrics: &Metrics) {
        let mut breakers = lock(&self.breakers);
        breakers.forget_hosts();
        Cause::KINDS.iter().for_each(|kind| metrics.open_breakers(kind, breakers.count_open(kind)));
        metrics.open_breakers("broker", lock(&self.brokers).iter().flatten().count());
        metrics.open_breakers("sink", usize::from(lock(&self.sink).is_some()));
    }

    /// The pause before the next probe, or `None` while messages may be received at any rate.
    pub(super) fn probe_interval(&self) -> Option<Duration> {
        self.refusals.probe_interval().or_else(|| lock(&self.breakers).probe_interval())
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
        lock(&self.breakers).check_device()
    }

    /// Says why the worker cannot work now.
    pub(super) fn ready(&self) -> Result<(), String> {
        lock(&self.breakers).check()?;
        self.refusals.check()?;
        let broker = lock(&self.brokers).iter().flatten().next().cloned();
        broker.or_else(|| lock(&self.sink).clone()).map_or(Ok(()), Err)
    }
}
