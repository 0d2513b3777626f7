use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use foveate_core::lock;
use tokio::sync::Notify;
use tokio::time::timeout_at;

use crate::{Buried, DeadLetter, Delivery, Depth, Fate, JobQueue, Judge, Message, QueueError, Receipt, Sent};

/// A queue within one process, for programs that embed a worker and for tests. It has leases by the clock, delivery
/// counts, delays and dead letters like a broker, but nothing outlives the process. A clone is the same queue.
#[derive(Clone, Debug)]
pub struct MemoryQueue {
    name: String,
    lease: Duration,
    max_receive: u32,
    max_messages: usize,
    max_bytes: usize,
    shared: Arc<SharedQueue>,
}

#[derive(Debug, Default)]
struct SharedQueue {
    state: Mutex<MemoryQueueState>,
    /// Notified when another message may be received.
    changed: Notify,
}

/// A message's next delivery time (when its lease ends, if leased), and a number that makes the place unique.
type Place = (Instant, u64);

#[derive(Debug, Default)]
struct MemoryQueueState {
    messages: BTreeMap<Place, StoredMessage>,
    /// The place of each receipt's message, until that message is received again.
    receipts: HashMap<u64, Place>,
    dead: Vec<(Delivery, DeadLetter)>,
    numbers: u64,
}

#[derive(Debug)]
struct StoredMessage {
    message: Message,
    /// Unique among all messages.
    key: u64,
    sent: SystemTime,
    failing_since: Option<SystemTime>,
    received: u32,
    /// The receipt of the latest delivery, unless the message was released.
    receipt: Option<u64>,
}

impl MemoryQueue {
    /// An empty queue without limits.
    pub fn new(name: impl Into<String>, lease: Duration, max_receive: u32) -> Self {
        let name = name.into();
        Self {
            name,
            lease,
            max_receive: max_receive.max(1),
            max_messages: usize::MAX,
            max_bytes: usize::MAX,
            shared: Arc::default(),
        }
    }

    /// The same queue, limited to `max_messages` at a time, leased ones included. Further messages fail with
    /// [`QueueError::Unreachable`].
    #[must_use]
    pub fn with_max_messages(self, max_messages: usize) -> Self {
        Self { max_messages, ..self }
    }

    /// The same queue, limited to bodies of `max_bytes`. Larger ones fail with [`QueueError::TooLarge`].
    #[must_use]
    pub fn with_max_bytes(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }

    /// The dead letters in the order of their arrival, each with its last delivery.
    pub fn dead_letters(&self) -> Vec<(Delivery, DeadLetter)> {
        self.state().dead.clone()
    }

    fn state(&self) -> MutexGuard<'_, MemoryQueueState> {
        lock(&self.shared.state)
    }

    fn send_one(&self, state: &mut MemoryQueueState, message: &Message) -> Result<Sent, QueueError> {
        let bytes = message.body.len();
        if bytes > self.max_bytes {
            return Err(QueueError::TooLarge { bytes, limit: self.max_bytes });
        }
        if state.messages.len() >= self.max_messages {
            let reason = format!("it is full: it holds {} messages", self.max_messages);
            return Err(QueueError::unreachable(self.name.as_str(), reason));
        }
        state.put_new(Instant::now(), message.clone(), 0, None);
        Ok(Sent::Stored)
    }

    /// Applies `deal` to the message of every live receipt; the other leases are lost.
    fn each(
        &self,
        receipts: &[Receipt],
        deal: impl Fn(&mut MemoryQueueState, StoredMessage),
    ) -> Vec<Result<(), QueueError>> {
        let mut state = self.state();
        let now = Instant::now();
        let results =
            receipts.iter().map(|receipt| state.take(receipt, now).map(|held| deal(&mut state, held))).collect();
        drop(state);
        self.shared.changed.notify_waiters();
        results
    }
}

impl MemoryQueueState {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Adds a message, which counts as `received` so often.
    fn put_new(&mut self, at: Instant, message: Message, received: u32, failing_since: Option<SystemTime>) {
        let key = self.number();
        let sent = SystemTime::now();
        self.put(at, StoredMessage { message, key, sent, failing_since, received, receipt: None });
    }

    fn put(&mut self, at: Instant, held: StoredMessage) {
        let place = (at, self.number());
        if let Some(receipt) = held.receipt {
            self.receipts.insert(receipt, place);
        }
        self.messages.insert(place, held);
    }

    /// Removes the message that `receipt` identifies, if its lease has not ended.
    fn take(&mut self, receipt: &Receipt, now: Instant) -> Result<StoredMessage, QueueError> {
        let number = receipt.0.parse().map_err(|_| QueueError::LeaseLost)?;
        let place = self.receipts.get(&number).copied().filter(|place| place.0 > now).ok_or(QueueError::LeaseLost)?;
        self.receipts.remove(&number);
        self.messages.remove(&place).ok_or(QueueError::LeaseLost)
    }

    /// Delivers the message that has waited longest, if any.
    fn deliver(&mut self, now: Instant, lease_ends: Instant) -> Option<Delivery> {
        let first = self.messages.first_entry().filter(|first| first.key().0 <= now)?;
        let mut held = first.remove();
        if let Some(ended) = held.receipt {
            self.receipts.remove(&ended);
        }
        let receipt = self.number();
        held.receipt = Some(receipt);
        held.received = held.received.saturating_add(1);
        let delivery = Delivery {
            id: held.message.id.clone(),
            key: held.key.to_string(),
            body: held.message.body.clone(),
            receipt: Receipt(receipt.to_string()),
            received: held.received,
            sent: Some(held.sent),
            failing_since: held.failing_since,
        };
        self.put(lease_ends, held);
        Some(delivery)
    }
}

/// The time `after` from now, or a century from now if that overflows.
fn later(now: Instant, after: Duration) -> Instant {
    now + after.min(Duration::from_secs(100 * 365 * 24 * 3600))
}

#[async_trait]
impl JobQueue for MemoryQueue {
    fn name(&self) -> &str {
        &self.name
    }

    fn lease(&self) -> Duration {
        self.lease
    }

    fn max_receive(&self) -> u32 {
        self.max_receive
    }

    async fn send(&self, messages: &[Message]) -> Vec<Result<Sent, QueueError>> {
        let mut state = self.state();
        let results = messages.iter().map(|message| self.send_one(&mut state, message)).collect();
        drop(state);
        self.shared.changed.notify_waiters();
        results
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        let deadline = later(Instant::now(), wait);
        loop {
            // Made before the look, so that it notices a message that comes right after.
            let changed = self.shared.changed.notified();
            let now = Instant::now();
            let lease_ends = later(now, self.lease);
            let next = {
                let mut state = self.state();
                let deliveries: Vec<_> = std::iter::from_fn(|| state.deliver(now, lease_ends)).take(max).collect();
                if !deliveries.is_empty() || max == 0 || now >= deadline {
                    return Ok(deliveries);
                }
                state.messages.keys().next().map_or(deadline, |place| place.0.min(deadline))
            };
            // Elapsed or changed: either way, the next look decides.
            let _ = timeout_at(next.into(), changed).await;
        }
    }

    async fn acknowledge(&self, receipts: &[Receipt]) -> Vec<Result<(), QueueError>> {
        self.each(receipts, |_, _| ())
    }

    async fn extend(&self, receipts: &[Receipt]) -> Vec<Result<(), QueueError>> {
        let lease_ends = later(Instant::now(), self.lease);
        self.each(receipts, |state, held| state.put(lease_ends, held))
    }

    async fn release(&self, receipts: &[Receipt], delay: Duration) -> Vec<Result<(), QueueError>> {
        let at = later(Instant::now(), delay);
        self.each(receipts, |state, held| state.put(at, StoredMessage { receipt: None, ..held }))
    }

    async fn renew(&self, delivery: &Delivery, delay: Duration) -> Result<(), QueueError> {
        let mut state = self.state();
        let now = Instant::now();
        let held = state.take(&delivery.receipt, now)?;
        state.put_new(later(now, delay), held.message, delivery.received, delivery.failing_since);
        drop(state);
        self.shared.changed.notify_waiters();
        Ok(())
    }

    async fn dead_letter(&self, delivery: &Delivery, why: &DeadLetter) -> Result<(), QueueError> {
        let mut state = self.state();
        state.take(&delivery.receipt, Instant::now())?;
        state.dead.push((delivery.clone(), why.clone()));
        Ok(())
    }

    async fn review(&self, judge: &mut Judge<'_>) -> Result<(), QueueError> {
        let mut state = self.state();
        let mut has_ended = false;
        for (delivery, why) in std::mem::take(&mut state.dead) {
            let Delivery { id, body, sent: since, .. } = delivery.clone();
            let buried = Buried { id, body, why: why.clone(), since, is_whole: true };
            let fate = if has_ended { Fate::Keep } else { judge(&buried) };
            has_ended |= fate == Fate::End;
            match fate {
                Fate::Remove => {}
                Fate::Keep | Fate::End => state.dead.push((delivery, why)),
                Fate::PutBack => {
                    state.put_new(Instant::now(), Message { id: buried.id, body: buried.body }, 0, None);
                }
            }
        }
        drop(state);
        self.shared.changed.notify_waiters();
        Ok(())
    }

    async fn depth(&self) -> Result<Depth, QueueError> {
        let state = self.state();
        let now = Instant::now();
        let leased = state.receipts.values().filter(|place| place.0 > now).count();
        Ok(Depth {
            waiting: (state.messages.len() - leased) as u64,
            leased: leased as u64,
            dead: state.dead.len() as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn message(id: &str) -> Message {
        Message { id: id.to_owned(), body: b"{}".to_vec() }
    }

    #[tokio::test]
    async fn a_full_queue_asks_for_patience() {
        let queue = MemoryQueue::new("small", LONG, 5).with_max_messages(2);
        let sent = queue.send(&[message("a"), message("b"), message("c")]).await;
        assert_eq!(sent[..2], [Ok(Sent::Stored), Ok(Sent::Stored)]);
        let refused = sent[2].clone().unwrap_err();
        assert!(refused.is_transient());
        assert_eq!(refused.to_string(), "queue small: it is full: it holds 2 messages");

        let received = queue.receive(1, Duration::ZERO).await.unwrap();
        assert!(queue.send(&[message("c")]).await[0].is_err(), "leased messages are held too");
        assert_eq!(queue.acknowledge(&[received[0].receipt.clone()]).await, [Ok(())]);
        assert_eq!(queue.send(&[message("c")]).await, [Ok(Sent::Stored)]);
    }

    #[tokio::test]
    async fn a_clone_is_the_same_queue_and_what_arrives_ends_the_wait() {
        let queue = MemoryQueue::new("shared", LONG, 5);
        let receiver = tokio::spawn({
            let queue = queue.clone();
            async move { queue.receive(10, LONG).await.unwrap() }
        });
        sleep(Duration::from_millis(50)).await;
        assert_eq!(queue.send(&[message("a")]).await, [Ok(Sent::Stored)]);
        let received = receiver.await.unwrap();
        assert_eq!(received[0].id, "a");
        assert_eq!(queue.depth().await, Ok(Depth { waiting: 0, leased: 1, dead: 0 }));
    }

    #[tokio::test]
    async fn nothing_is_left_behind_by_what_is_done() {
        let queue = MemoryQueue::new("tidy", LONG, 5);
        for round in 0..100 {
            queue.send(&[message("a"), message("b"), message("c")]).await;
            let received = queue.receive(3, Duration::ZERO).await.unwrap();
            let receipts: Vec<_> = received.iter().map(|delivery| delivery.receipt.clone()).collect();
            assert!(queue.extend(&receipts).await.iter().all(Result::is_ok), "round {round}");
            queue.release(&receipts[..1], Duration::ZERO).await;
            queue.acknowledge(&receipts[1..]).await;
            let again = queue.receive(1, Duration::ZERO).await.unwrap();
            queue.acknowledge(&[again[0].receipt.clone()]).await;
        }
        let state = queue.state();
        assert!(state.messages.is_empty() && state.receipts.is_empty(), "{state:?}");
    }

    #[tokio::test]
    async fn an_ended_lease_is_lost_before_somebody_else_has_the_message_and_after() {
        let queue = MemoryQueue::new("short", Duration::from_millis(20), 5);
        queue.send(&[message("a")]).await;
        let first = [queue.receive(1, LONG).await.unwrap().remove(0).receipt];
        sleep(Duration::from_millis(30)).await;
        assert_eq!(queue.acknowledge(&first).await, [Err(QueueError::LeaseLost)]);
        let second = queue.receive(1, LONG).await.unwrap().remove(0).receipt;
        assert_eq!(queue.extend(&first).await, [Err(QueueError::LeaseLost)]);
        let state = queue.state();
        assert_eq!(state.receipts.keys().map(u64::to_string).collect::<Vec<_>>(), [second.0]);
    }
}
