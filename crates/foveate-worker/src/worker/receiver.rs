//! Receives messages from one queue, never more than the in-flight limit allows.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use foveate_queue::{Delivery, JobQueue};

use super::backoff::Backoff;
use super::intake::{Intake, ReceivedMessage};
use super::state::WorkerState;
use crate::metrics::ReceiveLabel;

/// A receiver's longest wait for messages, after which it checks for the worker's stop.
pub(super) const LONG_POLL: Duration = Duration::from_secs(2);
/// The pause before the next messages while all were held back, lately.
const HELD_BACK_PAUSE: Duration = Duration::from_millis(100);

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
    pub(super) async fn run(self) {
        let mut failed = 0;
        while let Some(room) = self.state.stopping.run_until_cancelled(self.room()).await {
            let received = self.queue().receive(room, LONG_POLL).await;
            self.state.health.receiving(self.queue, self.queue(), received.as_ref().err());
            self.state.idle[self.queue].store(received.as_ref().is_ok_and(Vec::is_empty), Relaxed);
            match received {
                Ok(deliveries) => {
                    failed = 0;
                    self.accept(deliveries);
                }
                Err(_) => {
                    failed += 1;
                    let pause = tokio::time::sleep(self.reconnect.after(failed, None));
                    self.state.stopping.run_until_cancelled(pause).await;
                }
            }
        }
    }

    fn queue(&self) -> &dyn JobQueue {
        &*self.state.queues[self.queue]
    }

    /// Waits until messages may be received. Returns how many.
    async fn room(&self) -> usize {
        let room = self.state.leases.room(self.queue, || self.intake.stalled()).await;
        if let Some(interval) = self.state.health.probe_interval() {
            tokio::time::sleep(interval).await;
            return 1;
        }
        if self.intake.holds_all_back() {
            tokio::time::sleep(HELD_BACK_PAUSE).await;
        }
        room
    }

    fn accept(&self, deliveries: Vec<Delivery>) {
        self.measure_wait(&deliveries);
        let received = deliveries.into_iter().filter_map(|delivery| self.hold(delivery));
        received.for_each(|message| self.intake.begin(message));
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
