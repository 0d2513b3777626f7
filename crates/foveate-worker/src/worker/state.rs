//! The state that the parts of a worker share.

use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

use foveate_queue::JobQueue;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use xxhash_rust::xxh3::xxh3_64;

use super::death_record::{DeathRecord, MessageNumber};
use super::health::WorkerHealth;
use super::leases::Leases;
use super::ticket::Ticket;
use super::totals::Totals;
use crate::metrics::WorkerMetrics;

pub(super) struct WorkerState {
    /// Parts name a queue by its index here.
    pub(super) queues: Vec<Arc<dyn JobQueue>>,
    /// The runtime of the parts.
    pub(super) runtime: Handle,
    /// True for a queue that had no message when the worker last asked.
    pub(super) idle: Vec<AtomicBool>,
    pub(super) leases: Leases,
    pub(super) health: WorkerHealth,
    pub(super) deaths: Option<Arc<DeathRecord>>,
    /// The worker receives no more messages, and finishes those that it holds.
    pub(super) stopping: CancellationToken,
    /// The worker gives the rest back.
    pub(super) ended: CancellationToken,
    pub(super) metrics: Arc<WorkerMetrics>,
    pub(super) totals: Mutex<Totals>,
}

impl WorkerState {
    /// Runs `work` until the worker has ended.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let ended = self.ended.clone();
        self.runtime.spawn(async move {
            ended.run_until_cancelled(work).await;
        })
    }

    /// How many workers died with this message in a decoder, as far as the record knows.
    pub(super) fn deaths(&self, ticket: &Ticket) -> u32 {
        let died = ticket.delivery.received - ticket.delivery.received.min(1);
        match &self.deaths {
            // The first delivery has killed nobody.
            Some(deaths) if died > 0 => deaths.deaths(self.number(ticket)).min(died),
            _ => 0,
        }
    }

    /// Names a message in the record of deaths. The broker's time tells it from those of an earlier queue of the same
    /// name.
    pub(super) fn number(&self, Ticket { queue, delivery, .. }: &Ticket) -> MessageNumber {
        let sent = delivery.sent.and_then(|sent| sent.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let name = format!("{}\0{}\0{}", self.queues[*queue].name(), delivery.key, sent.as_nanos());
        xxh3_64(name.as_bytes()).max(1)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }
}
