//! Receives messages from one queue, never more than the in-flight limit allows.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use foveate_queue::{Delivery, JobQueue};

use super::backoff::Backoff;
use super::intake::{Intake, ReceivedMessage};
use super::state::WorkerState;
use crate::metrics::ReceiveLabel;
use crate::watchdog::ThreadWatch;

/// A receiver's longest wait for messages, after which it checks for the worker's stop.
pub(super) const LONG_POLL: Duration = Duration::from_secs(2);
/// A receiver's longest wait for room, after which it checks for the worker's stop.
const ROOM_WAIT: Duration = Duration::from_millis(200);

pub(super) struct Receiver {
    pub(super) state: Arc<WorkerState>,
    /// The index of the queue.
    pub(super) queue: usize,
    /// The delay before another request to a broker that does not answer.
    pub(super) reconnect: Backoff,
    pub(super) intake: Arc<Intake>,
}

impl Receiver {
    /// Receives messages until the worker stops.
    pub(super) fn run(&self, watch: &ThreadWatch) {
        let mut failed = 0;
        while !self.state.lifecycle.is_stopping() {
            let room = self.room();
            if room == 0 || self.state.lifecycle.is_stopping() {
                continue;
            }
            let busy = watch.busy();
            let received = self.state.runtime.block_on(self.queue().receive(room, LONG_POLL));
            drop(busy);
            self.state.health.receiving(self.queue, self.queue(), received.as_ref().err());
            self.state.idle[self.queue].store(received.as_ref().is_ok_and(Vec::is_empty), Relaxed);
            match received {
                Ok(deliveries) => {
                    failed = 0;
                    self.accept(deliveries);
                }
                Err(_) => {
                    failed += 1;
                    self.state.lifecycle.sleep(self.reconnect.after(failed, None));
                }
            }
        }
    }

    fn queue(&self) -> &dyn JobQueue {
        &*self.state.queues[self.queue]
    }

    /// The number of messages that may be received now. While the circuit breaker is open, that is one per probe
    /// interval.
    fn room(&self) -> usize {
        let room = self.state.leases.room(self.queue, || self.intake.stalled(), ROOM_WAIT);
        let Some(interval) = self.state.health.probe_interval() else { return room };
        self.state.lifecycle.sleep(interval);
        room.min(1)
    }

    fn accept(&self, deliveries: Vec<Delivery>) {
        self.measure_wait(&deliveries);
        // Hold all messages before beginning the first, which may have to wait for the engine.
        let received: Vec<ReceivedMessage> =
            deliveries.into_iter().filter_map(|delivery| self.hold(delivery)).collect();
        received.into_iter().for_each(|message| self.intake.begin(message));
    }

    /// Records how long the queue's messages wait. Those that come again have waited for a retry.
    fn measure_wait(&self, deliveries: &[Delivery]) {
        let queue = self.queue().name();
        let new = deliveries.iter().filter(|delivery| is_new(delivery));
        new.filter_map(|delivery| delivery.sent?.elapsed().ok())
            .for_each(|wait| self.state.metrics.message_wait(queue, wait));
        let wait = match deliveries {
            [] => Some(Duration::ZERO),
            _ => {
                deliveries.iter().rfind(|delivery| is_new(delivery)).and_then(|delivery| delivery.sent?.elapsed().ok())
            }
        };
        wait.into_iter().for_each(|wait| self.state.metrics.wait(queue, wait));
    }

    /// Holds a message. Returns `None` if the worker holds it already: its work continues under the new lease.
    fn hold(&self, delivery: Delivery) -> Option<ReceivedMessage> {
        let is_held = self.state.leases.renew(self.queue, &delivery);
        let label = match is_held {
            true => "held",
            false if is_new(&delivery) => "first",
            false => "again",
        };
        let label = ReceiveLabel { queue: self.queue().name().to_owned(), delivery: label };
        self.state.metrics.received.get_or_create(&label).inc();
        if is_held {
            return None;
        }
        let delivery = Arc::new(delivery);
        let (key, hold) = self.state.leases.add(self.queue, Arc::clone(&delivery), self.queue().lease());
        Some(ReceivedMessage { key, hold, queue: self.queue, delivery })
    }
}

/// Returns true if no worker has received the message before. A copy that counts no delivery is failing.
fn is_new(delivery: &Delivery) -> bool {
    delivery.received == 1 && delivery.failing_since.is_none()
}
