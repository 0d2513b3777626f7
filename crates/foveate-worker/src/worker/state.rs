//! The state that the parts of a worker share.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use foveate_queue::JobQueue;
use tokio::runtime::Handle;

use super::health::WorkerHealth;
use super::leases::Leases;
use super::lifecycle::Lifecycle;
use super::totals::Totals;
use crate::metrics::WorkerMetrics;

pub(super) struct WorkerState {
    /// The engine's runtime, on which brokers are asked.
    pub(super) runtime: Handle,
    /// Parts name a queue by its index here.
    pub(super) queues: Vec<Arc<dyn JobQueue>>,
    /// True for a queue that had no message when the worker last asked.
    pub(super) idle: Vec<AtomicBool>,
    pub(super) leases: Leases,
    pub(super) health: WorkerHealth,
    pub(super) lifecycle: Lifecycle,
    pub(super) metrics: Arc<WorkerMetrics>,
    pub(super) totals: Mutex<Totals>,
}
