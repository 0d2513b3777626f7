//! The state that the parts of a worker share.

use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use foveate_queue::JobQueue;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::health::WorkerHealth;
use super::leases::Leases;
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

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }
}
