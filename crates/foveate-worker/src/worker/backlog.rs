//! Measures the backlogs of the queues, for autoscaling.

use std::sync::Arc;
use std::time::Duration;

use super::state::WorkerState;
use crate::watchdog::ThreadWatch;

/// The interval at which the brokers are asked.
const INTERVAL: Duration = Duration::from_secs(15);

pub(super) struct Backlog {
    pub(super) state: Arc<WorkerState>,
}

impl Backlog {
    /// Measures until the worker has ended.
    pub(super) fn run(&self, watch: &ThreadWatch) {
        while !self.state.lifecycle.has_ended() {
            for queue in &self.state.queues {
                let busy = watch.busy();
                // While a broker does not answer, the last figures stay, and `/readyz` says so.
                if let Ok(depth) = self.state.runtime.block_on(queue.depth()) {
                    self.state.metrics.backlog(queue.name(), depth);
                }
                drop(busy);
            }
            // The worker's end wakes it.
            std::thread::park_timeout(INTERVAL);
        }
    }
}
