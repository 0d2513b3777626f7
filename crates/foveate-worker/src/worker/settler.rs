//! Settles messages: reports each outcome to the broker.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use foveate_queue::{DeadLetter, Delivery, QueueError, Receipt};
use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::backoff::Backoff;
use super::leases::Key;
use super::settlement::{How, PutBack, Why};
use super::state::WorkerState;
use super::ticket::Ticket;
use crate::{Failure, Stage, lock};

/// Receipts that are acknowledged by one call.
const BATCH: usize = 100;

/// Calls of one queue's broker at once.
const CALLS: usize = 4;

/// The factor of a message's time to fail while a circuit breaker says that the fault is not its own.
const OUTAGE: u32 = 24;

/// The last part that every message passes.
pub(super) struct Settler {
    pub(super) state: Arc<WorkerState>,
    /// True if the settled messages determine the worker's rate.
    pub(super) measures_rate: bool,
    /// The delay before a failed message is delivered again.
    pub(super) backoff: Backoff,
    /// The time for which a message may fail.
    pub(super) retry_for: Duration,
    /// The delay before a message that the worker's settings refuse is delivered again.
    pub(super) refused: Backoff,
    /// The delay before another request to a broker that does not answer.
    pub(super) reconnect: Backoff,
    /// The messages to settle, of each queue.
    pub(super) due: Vec<UnboundedSender<Settlement>>,
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

impl Settler {
    /// Acknowledges a message whose result was delivered.
    pub(super) fn acknowledge(&self, ticket: Ticket) {
        let ms = ticket.since.elapsed().as_millis() as u64;
        ticket.span.in_scope(|| tracing::debug!(ms, "done"));
        let stage = if ticket.callback.is_some() { Stage::Callback } else { Stage::Sink };
        self.settle(ticket, stage, How::Acknowledge);
    }

    /// Acknowledges a message that asks for nothing.
    pub(super) fn skip(&self, ticket: Ticket) {
        self.settle(ticket, Stage::Parse, How::Skip);
    }

    /// Puts a failed message back, or moves it to the dead letters.
    pub(super) fn fail(&self, ticket: Ticket, failure: Failure) {
        if !ticket.hold.is_held() {
            return;
        }
        let _span = ticket.span.clone().entered();
        let Failure { stage, ref reason, .. } = failure;
        let how = match self.put_back(&ticket, &failure) {
            Some(put_back) => {
                let delay_ms = put_back.delay.as_millis() as u64;
                // An outage is the circuit breaker's line, and a single failure that a retry mends is no news.
                let is_news = ticket.delivery.received > 1 && !self.state.health.is_known(&ticket, &failure);
                match (put_back.why, failure.setting) {
                    (Why::Failed, _) if is_news => {
                        tracing::warn!(%stage, reason, delay_ms, "failed; the message is retried")
                    }
                    (Why::Refused, Some(setting)) => {
                        let message = (ticket.queue, ticket.delivery.key.as_str());
                        self.state.health.refusals.refused(setting, reason, message);
                        tracing::debug!(%stage, reason, "given back: this worker's settings refuse it");
                    }
                    (Why::Failed, _) => tracing::debug!(%stage, reason, delay_ms, "failed; the message is retried"),
                    _ => tracing::debug!(%stage, reason, delay_ms, "given back until that works"),
                }
                How::PutBack(put_back)
            }
            None => How::DeadLetter(self.dead_letter(&ticket, failure)),
        };
        self.settle(ticket, stage, how);
    }

    /// Returns true if a message ends with this failure.
    pub(super) fn is_final(&self, ticket: &Ticket, failure: &Failure) -> bool {
        self.put_back(ticket, failure).is_none()
    }

    /// Decides how a failed message returns to its queue; `None` if it does not.
    fn put_back(&self, ticket: &Ticket, failure: &Failure) -> Option<PutBack> {
        let health = &self.state.health;
        let tries = ticket.delivery.received;
        let failing_since = ticket.delivery.failing_since;
        let anew = self.anew(ticket);
        let is_refused = failure.setting.is_some_and(|setting| health.refusals.counts(setting));
        match failure {
            _ if is_refused => {
                let delay = self.refused.after(tries, None);
                Some(PutBack { why: Why::Refused, delay, failing_since, copied: anew })
            }
            Failure { stage: Stage::Shutdown, .. } => {
                Some(PutBack { why: Why::Failed, delay: Duration::ZERO, failing_since, copied: anew })
            }
            Failure { transient: false, .. } => None,
            _ => {
                let is_outage = health.is_outage(ticket, failure);
                let why = if failure.untried || is_outage { Why::Held } else { Why::Failed };
                // A delivery without a try does not count, and neither does one that the network failed.
                let is_uncounted = failure.untried || health.is_network_outage(failure);
                let uncounted = is_uncounted.then(|| tries.saturating_sub(1));
                let copied = uncounted.or(anew);
                // The longer it fails, the longer it waits.
                let delay = self.backoff.after(tries, failure.retry_after);
                let delay = delay.max((ticket.failing_for() / 4).min(self.backoff.max));
                let failing_since = failing_since.or_else(|| Some(SystemTime::now()));
                let has_tries = uncounted.unwrap_or(tries) < self.max_receive(ticket.queue);
                let returns = failure.untried || has_tries || self.has_time(ticket, is_outage);
                returns.then_some(PutBack { why, delay, failing_since, copied })
            }
        }
    }

    /// The count of a message's copy, if the message has no deliveries left: only one that ends its workers should come
    /// to the quarantine.
    fn anew(&self, ticket: &Ticket) -> Option<u32> {
        (ticket.delivery.received >= self.max_receive(ticket.queue)).then_some(0)
    }

    /// Returns true if a message may go on to fail, or to wait untried for something that fails. In an outage, it has
    /// more time.
    pub(super) fn has_time(&self, ticket: &Ticket, is_outage: bool) -> bool {
        ticket.failing_for() < self.retry_for.saturating_mul(if is_outage { OUTAGE } else { 1 })
    }

    fn max_receive(&self, queue: usize) -> u32 {
        self.state.queues[queue].max_receive()
    }

    fn dead_letter(&self, ticket: &Ticket, Failure { stage, reason, transient, .. }: Failure) -> DeadLetter {
        let tries = ticket.delivery.received;
        let minutes = ticket.failing_for().as_secs() / 60;
        let reason = match minutes {
            _ if !transient => reason,
            1.. if !self.retry_for.is_zero() => format!("{reason} (failing for {minutes} minutes)"),
            _ => format!("{reason} (the last of {tries} tries)"),
        };
        tracing::warn!(%stage, reason, "failed; the message goes to the dead letters");
        DeadLetter { stage: stage.name().to_owned(), reason }
    }

    fn settle(&self, ticket: Ticket, stage: Stage, how: How) {
        let Ticket { key, queue, delivery, parts, id, .. } = ticket;
        let (stage, how) = match parts {
            None => (stage, how),
            Some(parts) => match parts.end(&id, stage, how) {
                Some(end) => end,
                // Other images of the message are under way.
                None => return,
            },
        };
        self.push(Settlement { key, queue, delivery, stage, how, tries: 0 });
    }

    fn push(&self, settlement: Settlement) {
        // Refused once the worker has ended: the message has been given back, or its lease ends by itself.
        let _ = self.due[settlement.queue].send(settlement);
    }

    /// Settles the messages of a queue.
    pub(super) async fn run(self: Arc<Self>, mut due: UnboundedReceiver<Settlement>) {
        let calls = Arc::new(Semaphore::new(CALLS));
        let mut settlements = Vec::new();
        while due.recv_many(&mut settlements, BATCH).await > 0 {
            let place = Arc::clone(&calls).acquire_owned().await;
            let settlements = std::mem::take(&mut settlements);
            let settler = Arc::clone(&self);
            self.state.spawn(async move {
                settler.settle_all(settlements).await;
                drop(place);
            });
        }
    }

    async fn settle_all(self: &Arc<Self>, settlements: Vec<Settlement>) {
        let is_acknowledged = |settlement: &Settlement| matches!(settlement.how, How::Acknowledge | How::Skip);
        let (acknowledged, others): (Vec<_>, Vec<_>) = settlements.into_iter().partition(is_acknowledged);
        self.acknowledge_all(acknowledged).await;
        join_all(others.into_iter().map(|settlement| self.settle_one(settlement))).await;
    }

    async fn acknowledge_all(self: &Arc<Self>, settlements: Vec<Settlement>) {
        let Some(queue) = settlements.first().map(|first| first.queue) else { return };
        let receipts: Vec<Receipt> = settlements.iter().map(|settlement| self.receipt(settlement)).collect();
        let results = self.state.queues[queue].acknowledge(&receipts).await;
        for ((settlement, receipt), result) in settlements.into_iter().zip(&receipts).zip(results) {
            self.settled(settlement, receipt, result);
        }
    }

    async fn settle_one(self: &Arc<Self>, settlement: Settlement) {
        if !self.state.leases.is_held(settlement.key) {
            // Another worker has the message by now, and settles it.
            return self.count(&settlement, "lost");
        }
        let receipt = self.receipt(&settlement);
        let result = self.tell(&settlement, receipt.clone()).await;
        self.settled(settlement, &receipt, result);
    }

    async fn tell(&self, settlement: &Settlement, receipt: Receipt) -> Result<(), QueueError> {
        let queue = &self.state.queues[settlement.queue];
        let latest = Delivery { receipt: receipt.clone(), ..(*settlement.delivery).clone() };
        let results = match &settlement.how {
            How::Acknowledge | How::Skip => queue.acknowledge(&[receipt]).await,
            How::DeadLetter(letter) => return queue.dead_letter(&latest, letter).await,
            &How::PutBack(PutBack { copied: Some(received), failing_since, delay, .. }) => {
                return queue.renew(&Delivery { received, failing_since, ..latest }, delay).await;
            }
            How::PutBack(put_back) => queue.release(&[receipt], put_back.delay).await,
        };
        results.into_iter().next().unwrap_or(Ok(()))
    }

    /// The receipt of the latest delivery, or of the first if the message is no longer held.
    fn receipt(&self, settlement: &Settlement) -> Receipt {
        self.state.leases.receipt(settlement.key).unwrap_or_else(|| settlement.delivery.receipt.clone())
    }

    /// Handles the broker's answer.
    fn settled(self: &Arc<Self>, settlement: Settlement, receipt: &Receipt, result: Result<(), QueueError>) {
        let key = settlement.key;
        match result {
            Err(error) if error.is_transient() && self.state.leases.is_held(key) => self.retry(settlement, &error),
            // The broker delivered the message again in the meantime, and that delivery has to be settled too.
            _ if !self.state.leases.ended(key, receipt) && self.state.leases.is_held(key) => self.push(settlement),
            Ok(()) => {
                let queue = &self.state.queues[settlement.queue];
                self.state.health.settling(settlement.queue, &**queue, None);
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

    fn retry(self: &Arc<Self>, mut settlement: Settlement, error: &QueueError) {
        settlement.tries += 1;
        let queue = &self.state.queues[settlement.queue];
        self.state.health.settling(settlement.queue, &**queue, Some(error));
        tracing::debug!(queue = queue.name(), %error, tries = settlement.tries, "cannot settle a message yet");
        let pause = tokio::time::sleep(self.reconnect.after(settlement.tries, None));
        let settler = Arc::clone(self);
        self.state.spawn(async move {
            pause.await;
            settler.push(settlement);
        });
    }

    /// Remembers what became of a message.
    fn note(&self, settlement: &Settlement) {
        let refusals = &self.state.health.refusals;
        let message = (settlement.queue, settlement.delivery.key.as_str());
        match &settlement.how {
            // The broker knows a copy by another key.
            How::PutBack(PutBack { why: Why::Refused | Why::Held, copied: Some(_), .. }) => refusals.forget(message),
            How::PutBack(PutBack { why: Why::Refused | Why::Held, .. }) => {}
            _ if settlement.stage == Stage::Shutdown => {}
            _ => refusals.worked(message),
        }
    }

    fn count(&self, settlement: &Settlement, how: &'static str) {
        self.state.metrics.settled(self.state.queues[settlement.queue].name(), how, settlement.stage);
        lock(&self.state.totals).count(how, settlement.stage);
    }
}
