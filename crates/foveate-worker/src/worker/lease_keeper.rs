//! Keeps the leases of one queue's messages alive, and gives up the messages whose leases could not be kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use foveate_queue::{Delivery, JobQueue, QueueError, Receipt};

use super::leases::Key;
use super::state::WorkerState;
use crate::Stage;
use crate::metrics::ResultLabel;

/// Leases that are extended by one call; between the calls, the keeper gives up leases that have ended.
const BATCH: usize = 160;
/// Looks for leases that are due, per length of a lease, and the limits of the interval between two.
const TICKS_PER_LEASE: u32 = 10;
const MIN_TICK: Duration = Duration::from_millis(20);
const MAX_TICK: Duration = Duration::from_secs(1);

pub(super) struct LeaseKeeper {
    pub(super) state: Arc<WorkerState>,
    /// The index of the queue.
    pub(super) queue: usize,
    /// True if leases are extended; otherwise they are only given up when they end.
    pub(super) heartbeat: bool,
}

impl LeaseKeeper {
    /// Keeps leases.
    pub(super) async fn run(self: Arc<Self>) {
        let tick = (self.queue().lease() / TICKS_PER_LEASE).clamp(MIN_TICK, MAX_TICK);
        loop {
            if self.heartbeat {
                self.extend_due().await;
            }
            self.expire();
            tokio::time::sleep(tick).await;
        }
    }

    fn queue(&self) -> &dyn JobQueue {
        &*self.state.queues[self.queue]
    }

    async fn extend_due(&self) {
        for batch in self.state.leases.due(self.queue).chunks(BATCH) {
            self.extend(batch).await;
            self.expire();
        }
    }

    async fn extend(&self, due: &[(Key, Receipt)]) {
        let receipts: Vec<Receipt> = due.iter().map(|(_, receipt)| receipt.clone()).collect();
        let asked = Instant::now();
        let results = self.queue().extend(&receipts).await;
        for ((key, receipt), result) in due.iter().zip(results) {
            if let Some(result) = self.extended(*key, receipt, asked, result) {
                self.count(result, 1);
            }
        }
    }

    /// Handles the broker's answer. Returns the result's name in metrics, if it counts.
    fn extended(
        &self,
        key: Key,
        receipt: &Receipt,
        asked: Instant,
        result: Result<(), QueueError>,
    ) -> Option<&'static str> {
        match result {
            Ok(()) => {
                self.state.leases.extended(key, asked);
                Some("ok")
            }
            // The message may have been settled, or delivered anew, in the meantime.
            Err(QueueError::LeaseLost) => self.state.leases.ended(key, receipt).then_some("lost"),
            // The keeper retries until the lease ends.
            Err(_) => Some("failed"),
        }
    }

    /// Gives up the messages whose leases have ended.
    fn expire(&self) {
        let lost = self.state.leases.expire();
        if lost > 0 {
            tracing::warn!(lost, "leases ended before their messages were done; the broker delivers these again");
            self.count("lost", lost);
        }
    }

    fn count(&self, result: &'static str, leases: usize) {
        self.state.metrics.extensions.get_or_create(&ResultLabel { result }).inc_by(leases as u64);
    }

    /// Releases messages. Those that no stage has seen, and that would go to the quarantine for that, start anew: a
    /// worker's restart is not their fault.
    pub(super) async fn give_back(self: Arc<Self>, held: Vec<(Delivery, bool)>) {
        let is_unseen =
            |(delivery, has_begun): &(Delivery, bool)| !has_begun && delivery.received >= self.queue().max_receive();
        let (unseen, others): (Vec<_>, Vec<_>) = held.into_iter().partition(is_unseen);
        let receipts: Vec<Receipt> = others.into_iter().map(|(delivery, _)| delivery.receipt).collect();
        let anew = unseen.into_iter().map(|(delivery, _)| Delivery { received: 0, ..delivery });
        let mut results = self.queue().release(&receipts, Duration::ZERO).await;
        for delivery in anew {
            results.push(self.queue().renew(&delivery, Duration::ZERO).await);
        }
        for result in results {
            match result {
                Ok(()) => self.state.metrics.settled(self.queue().name(), "released", Stage::Shutdown),
                Err(error) => {
                    tracing::warn!(%error, "cannot release a message; the broker delivers it again when its lease ends");
                }
            }
        }
    }
}
