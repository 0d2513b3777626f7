//! Settles messages: reports each outcome to the broker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foveate_queue::{DeadLetter, Delivery, QueueError, Receipt};

use super::backoff::Backoff;
use super::delay_queue::DelayQueue;
use super::leases::Key;
use super::state::WorkerState;
use super::ticket::Ticket;
use crate::watchdog::ThreadWatch;
use crate::{Failure, Setting, Stage, lock};

/// Receipts that are acknowledged by one call.
const BATCH: usize = 100;

/// The last part that every message passes.
pub(super) struct Settler {
    pub(super) state: Arc<WorkerState>,
    /// Whether the settled messages determine the worker's rate.
    pub(super) measures_rate: bool,
    /// The delay before a failed message is delivered again.
    pub(super) backoff: Backoff,
    /// The delay before a message that the worker's settings refuse is delivered again.
    pub(super) refused: Backoff,
    /// The delay before another request to a broker that does not answer.
    pub(super) reconnect: Backoff,
    pub(super) due: DelayQueue<Settlement>,
}

/// A message to settle.
pub(super) struct Settlement {
    key: Key,
    queue: usize,
    delivery: Arc<Delivery>,
    stage: Stage,
    how: How,
    tries: u32,
}

enum How {
    Acknowledge,
    Release(Duration),
    /// Released because of the worker's own settings.
    GiveBack(Duration),
    /// The same, but the message has no deliveries left that may fail.
    Renew,
    DeadLetter(DeadLetter),
}

impl How {
    /// The name in metrics.
    fn name(&self) -> &'static str {
        match self {
            Self::Acknowledge => "acknowledged",
            Self::Release(_) => "released",
            Self::GiveBack(_) | Self::Renew => "refused",
            Self::DeadLetter(_) => "dead",
        }
    }
}

impl Settler {
    /// Acknowledges a message whose result was delivered.
    pub(super) fn acknowledge(&self, ticket: Ticket) {
        let ms = ticket.since.elapsed().as_millis() as u64;
        ticket.span.in_scope(|| tracing::debug!(ms, "done"));
        let stage = if ticket.callback.is_some() { Stage::Callback } else { Stage::Sink };
        self.settle(ticket, stage, How::Acknowledge);
    }

    /// Releases a failed message for a retry, gives it back, or moves it to the dead letters.
    pub(super) fn fail(&self, ticket: Ticket, failure: Failure) {
        if !ticket.hold.is_held() {
            return;
        }
        let _span = ticket.span.clone().entered();
        let stage = failure.stage;
        if let Some(setting) = failure.setting.filter(|&setting| self.state.health.refusals.counts(setting)) {
            let how = self.give_back(&ticket, setting, &failure);
            return self.settle(ticket, stage, how);
        }
        let how = match self.retry_delay(&ticket, &failure) {
            Some(delay) => {
                let Failure { reason, .. } = failure;
                tracing::warn!(%stage, reason, delay_ms = delay.as_millis() as u64, "failed; the message is retried");
                How::Release(delay)
            }
            None => dead_letter(failure, ticket.delivery.received),
        };
        self.settle(ticket, stage, how);
    }

    /// Gives back a message that the worker's own settings refuse. Its tries are for workers that can finish it, so a
    /// message without any left starts anew.
    fn give_back(&self, ticket: &Ticket, setting: Setting, failure: &Failure) -> How {
        self.state.health.refusals.refused(setting, &failure.reason, (ticket.queue, &ticket.delivery.key));
        let Failure { stage, reason, .. } = failure;
        tracing::debug!(%stage, reason, "given back: this worker's settings refuse it");
        let received = ticket.delivery.received;
        match received < self.state.queues[ticket.queue].max_receive() {
            true => How::GiveBack(self.refused.after(received, None)),
            false => How::Renew,
        }
    }

    /// Whether a message ends with this failure.
    pub(super) fn is_final(&self, ticket: &Ticket, failure: &Failure) -> bool {
        let is_given_back = failure.setting.is_some_and(|setting| self.state.health.refusals.counts(setting));
        !is_given_back && self.retry_delay(ticket, failure).is_none()
    }

    /// The delay before a retry, or `None` if there is none left.
    fn retry_delay(&self, ticket: &Ticket, failure: &Failure) -> Option<Duration> {
        let (tries, most) = (ticket.delivery.received, self.state.queues[ticket.queue].max_receive());
        match failure {
            Failure { stage: Stage::Shutdown, .. } => Some(Duration::ZERO),
            Failure { transient: true, retry_after, .. } if tries < most => {
                Some(self.backoff.after(tries, *retry_after))
            }
            _ => None,
        }
    }

    fn settle(&self, ticket: Ticket, stage: Stage, how: How) {
        let Ticket { key, queue, delivery, .. } = ticket;
        self.push(Instant::now(), Settlement { key, queue, delivery, stage, how, tries: 0 });
    }

    fn push(&self, at: Instant, settlement: Settlement) {
        // Refused once the worker has ended: the message has been given back, or its lease ends by itself.
        let _ = self.due.push(at, settlement);
    }

    /// Settles messages until [`Settler::close`] is called.
    pub(super) fn run(&self, watch: &ThreadWatch) {
        while let Some(due) = self.due.pop(BATCH) {
            let mut acknowledged: BTreeMap<usize, Vec<Settlement>> = BTreeMap::new();
            let mut others = Vec::new();
            for settlement in due {
                match settlement.how {
                    How::Acknowledge => acknowledged.entry(settlement.queue).or_default().push(settlement),
                    _ => others.push(settlement),
                }
            }
            acknowledged.into_iter().for_each(|(queue, settlements)| self.acknowledge_batch(queue, settlements, watch));
            // One by one: a broker that is down takes a while to fail each.
            others.into_iter().for_each(|settlement| self.settle_one(settlement, watch));
        }
    }

    /// Ends [`Settler::run`]. The remaining messages have already been given back.
    pub(super) fn close(&self) {
        drop(self.due.close());
    }

    fn acknowledge_batch(&self, queue: usize, settlements: Vec<Settlement>, watch: &ThreadWatch) {
        let receipts: Vec<Receipt> = settlements.iter().map(|settlement| self.receipt(settlement)).collect();
        let busy = watch.busy();
        let results = self.state.queues[queue].acknowledge(&receipts);
        drop(busy);
        for ((settlement, receipt), result) in settlements.into_iter().zip(&receipts).zip(results) {
            self.settled(settlement, receipt, result);
        }
    }

    fn settle_one(&self, settlement: Settlement, watch: &ThreadWatch) {
        if !self.state.leases.is_held(settlement.key) {
            // Another worker has the message by now, and settles it.
            return self.count(&settlement, "lost");
        }
        let receipt = self.receipt(&settlement);
        let busy = watch.busy();
        let result = self.tell(&settlement, receipt.clone());
        drop(busy);
        self.settled(settlement, &receipt, result);
    }

    fn tell(&self, settlement: &Settlement, receipt: Receipt) -> Result<(), QueueError> {
        let queue = &self.state.queues[settlement.queue];
        let latest = |receipt| Delivery { receipt, ..(*settlement.delivery).clone() };
        let results = match &settlement.how {
            How::Acknowledge => queue.acknowledge(&[receipt]),
            How::Release(delay) | How::GiveBack(delay) => queue.release(&[receipt], *delay),
            How::Renew => return queue.renew(&latest(receipt)),
            How::DeadLetter(letter) => return queue.dead_letter(&latest(receipt), letter),
        };
        results.into_iter().next().unwrap_or(Ok(()))
    }

    /// The receipt of the latest delivery, or of the first if the message is no longer held.
    fn receipt(&self, settlement: &Settlement) -> Receipt {
        self.state.leases.receipt(settlement.key).unwrap_or_else(|| settlement.delivery.receipt.clone())
    }

    /// Handles the broker's answer.
    fn settled(&self, settlement: Settlement, receipt: &Receipt, result: Result<(), QueueError>) {
        let key = settlement.key;
        match result {
            Err(error) if error.is_transient() && self.state.leases.is_held(key) => self.retry(settlement, &error),
            // The broker delivered the message again in the meantime, and that delivery has to be settled too.
            _ if !self.state.leases.ended(key, receipt) && self.state.leases.is_held(key) => {
                self.push(Instant::now(), settlement)
            }
            Ok(()) => {
                self.count(&settlement, settlement.how.name());
                self.note(&settlement);
                if self.measures_rate {
                    self.state.leases.limiter().finished();
                }
            }
            Err(error) => {
                let queue = self.state.queues[settlement.queue].name();
                tracing::warn!(queue, %error, "cannot settle a message; it may be delivered again");
                self.count(&settlement, "lost");
            }
        }
    }

    fn retry(&self, mut settlement: Settlement, error: &QueueError) {
        settlement.tries += 1;
        let queue = self.state.queues[settlement.queue].name();
        tracing::warn!(queue, %error, tries = settlement.tries, "cannot settle a message yet");
        self.push(Instant::now() + self.reconnect.after(settlement.tries, None), settlement);
    }

    /// Remembers what became of a message.
    fn note(&self, settlement: &Settlement) {
        let refusals = &self.state.health.refusals;
        let message = (settlement.queue, settlement.delivery.key.as_str());
        match settlement.how {
            // The broker knows the new copy by another key.
            How::Renew => refusals.forget(message),
            How::GiveBack(_) => {}
            _ if settlement.stage == Stage::Shutdown => {}
            _ => refusals.worked(message),
        }
    }

    fn count(&self, settlement: &Settlement, how: &'static str) {
        self.state.metrics.settled(self.state.queues[settlement.queue].name(), how, settlement.stage);
        lock(&self.state.totals).count(how, settlement.stage);
    }
}

fn dead_letter(Failure { stage, reason, transient, .. }: Failure, tries: u32) -> How {
    let reason = if transient { format!("{reason} (the last of {tries} tries)") } else { reason };
    tracing::error!(%stage, reason, "failed; the message goes to the dead letters");
    How::DeadLetter(DeadLetter { stage: stage.name().to_owned(), reason })
}
