//! A worker's faults, for `/healthz` and `/readyz`.

use std::sync::Mutex;
use std::time::Duration;

use foveate_core::error_chain;
use foveate_queue::{JobQueue, QueueError};
use foveate_sink::SinkError;

use super::circuit_breaker::{Cause, CircuitBreakers};
use super::refusals::Refusals;
use super::ticket::Ticket;
use crate::metrics::WorkerMetrics;
use crate::{Failure, Outcome, Setting, Stage, lock};

pub(super) struct WorkerHealth {
    /// Messages that the worker's own settings refuse.
    pub(super) refusals: Refusals,
    breakers: Mutex<CircuitBreakers>,
    /// The faults of each queue's broker.
    brokers: Mutex<Vec<Broker>>,
    sink: Mutex<Option<String>>,
}

/// The faults of a broker's queue, if it does not work.
#[derive(Clone, Default)]
struct Broker {
    receiving: Option<String>,
    settling: Option<String>,
}

impl Broker {
    fn fails(&self) -> bool {
        self.receiving.is_some() || self.settling.is_some()
    }
}

impl WorkerHealth {
    /// The health of a worker on `queues` queues whose largest batch is `batch`.
    pub(super) fn new(queues: usize, batch: usize, remedy: fn(Setting) -> Option<&'static str>) -> Self {
        Self {
            refusals: Refusals::new(remedy),
            breakers: Mutex::new(CircuitBreakers::new(batch)),
            brokers: Mutex::new(vec![Broker::default(); queues]),
            sink: Mutex::default(),
        }
    }

    /// Records what the outcome of a message's image says about its source and about the device.
    pub(super) fn record(&self, ticket: &Ticket, outcome: &Outcome) {
        let mut breakers = lock(&self.breakers);
        let key = &ticket.id;
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
                // The image was downloaded, although a later stage failed.
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
        match failure {
            None => breakers.succeeded(&receiver),
            Some(failure) if failure.transient => {
                breakers.network(None, failure);
                breakers.failed(&receiver, &ticket.id, failure);
            }
            // It answered, although it does not take this result.
            Some(Failure { reached: Some(true), .. }) => breakers.succeeded(&receiver),
            Some(_) => {}
        }
    }

    /// Checks that a cause may be used now; the error is the time to wait.
    pub(super) fn admit(&self, cause: &Cause) -> Result<(), Duration> {
        lock(&self.breakers).admit(cause)
    }

    /// Returns true if a message failed for a cause of the operator's that fails for many messages.
    pub(super) fn is_outage(&self, ticket: &Ticket, failure: &Failure) -> bool {
        if self.is_network_outage(failure) {
            return true;
        }
        self.is_open(ticket, failure, Cause::is_operators)
    }

    /// Returns true if a message failed for a cause whose breaker is open: the log has it already.
    pub(super) fn is_known(&self, ticket: &Ticket, failure: &Failure) -> bool {
        self.is_network_outage(failure) || self.is_open(ticket, failure, |_| true)
    }

    fn is_open(&self, ticket: &Ticket, failure: &Failure, counts: fn(&Cause) -> bool) -> bool {
        let breakers = lock(&self.breakers);
        let cause = match failure.stage {
            Stage::Download => ticket.source.clone(),
            Stage::Callback => ticket.receiver(),
            _ => return breakers.is_open(&Cause::Device),
        };
        cause.is_some_and(|cause| counts(&cause) && breakers.is_open(&cause))
    }

    /// Returns true if a download failed because of the network, as those from other sites do.
    pub(super) fn is_network_outage(&self, failure: &Failure) -> bool {
        failure.stage == Stage::Download
            && failure.reached == Some(false)
            && lock(&self.breakers).is_open(&Cause::Network)
    }

    /// Updates the metrics.
    pub(super) fn measure(&self, metrics: &WorkerMetrics) {
        let mut breakers = lock(&self.breakers);
        breakers.forget_unused();
        Cause::KINDS.iter().for_each(|kind| metrics.open_breakers(kind, breakers.count_open(kind)));
        metrics.open_breakers("broker", lock(&self.brokers).iter().filter(|broker| broker.receiving.is_some()).count());
        metrics.open_breakers("sink", usize::from(lock(&self.sink).is_some()));
    }

    /// The pause before the next probe, or `None` while messages may be received at any rate.
    pub(super) fn probe_interval(&self) -> Option<Duration> {
        self.refusals.probe_interval().or_else(|| lock(&self.breakers).probe_interval())
    }

    /// Records whether messages of `queue`, which has this `index`, can be received.
    pub(super) fn receiving(&self, index: usize, queue: &dyn JobQueue, fault: Option<&QueueError>) {
        self.broker(index, queue, fault, |broker| &mut broker.receiving);
    }

    /// Records whether messages of `queue`, which has this `index`, can be settled.
    pub(super) fn settling(&self, index: usize, queue: &dyn JobQueue, fault: Option<&QueueError>) {
        self.broker(index, queue, fault, |broker| &mut broker.settling);
    }

    /// Logs an outage at its start and at its end.
    fn broker(
        &self,
        index: usize,
        queue: &dyn JobQueue,
        fault: Option<&QueueError>,
        part: fn(&mut Broker) -> &mut Option<String>,
    ) {
        let broker = &mut lock(&self.brokers)[index];
        let failed = broker.fails();
        *part(broker) = fault.map(ToString::to_string);
        match fault {
            Some(error) if !failed => tracing::error!(%error, "the broker fails; the worker retries"),
            None if failed && !broker.fails() => tracing::info!(queue = queue.name(), "the broker works again"),
            _ => {}
        }
    }

    /// Records whether the sink writes.
    pub(super) fn sink(&self, fault: Option<&SinkError>) {
        let fault = fault.map(|error| error_chain(error));
        let mut known = lock(&self.sink);
        match (&fault, known.is_some()) {
            (Some(error), false) => tracing::error!(%error, "cannot publish a segment; the worker retries"),
            (None, true) => tracing::info!("publishes segments again"),
            _ => {}
        }
        *known = fault;
    }

    /// Says why the worker should be restarted.
    pub(super) fn live(&self) -> Result<(), String> {
        lock(&self.breakers).check_device()
    }

    /// Says why the worker cannot work now.
    pub(super) fn ready(&self) -> Result<(), String> {
        lock(&self.breakers).check()?;
        self.refusals.check()?;
        let broker = lock(&self.brokers).iter().find_map(|broker| broker.receiving.clone());
        broker.or_else(|| lock(&self.sink).clone()).map_or(Ok(()), Err)
    }
}
