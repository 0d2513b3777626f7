//! The queue of the experiment.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use foveate_core::lock;
use foveate_queue::{DeadLetter, Delivery, Depth, JobQueue, Judge, MemoryQueue, Message, QueueError, Receipt, Sent};

use crate::LabError;
use crate::bench::cells::wrong;

/// A queue in memory that is never empty while it is open, and records how long its messages are leased.
pub(super) struct Watched {
    inner: MemoryQueue,
    /// Returns the message of a request, or why it cannot be made.
    compose: Box<dyn Fn(usize) -> Result<Message, String> + Send + Sync>,
    seen: Mutex<WatchedCalls>,
    changed: Condvar,
}

#[derive(Default)]
struct WatchedCalls {
    is_closed: bool,
    /// Number of messages that were sent or are about to be.
    sent: usize,
    deliveries: usize,
    /// Time of delivery of each leased message.
    away: HashMap<Receipt, Instant>,
    /// Milliseconds of each acknowledged message, from its delivery to its acknowledgement.
    ms: Vec<f64>,
    /// Time of the last acknowledgement, or of the first delivery.
    moved: Option<Instant>,
    failed: Option<String>,
}

/// Length of a lease. The longest timeout is shorter, so no message exceeds it.
const LEASE: Duration = Duration::from_secs(120);
/// Maximum length of one wait, so that the caller can look at other things.
const LOOK: Duration = Duration::from_millis(100);

impl Watched {
    pub(super) fn new(compose: impl Fn(usize) -> Result<Message, String> + Send + Sync + 'static) -> Self {
        let inner = MemoryQueue::new("bench", LEASE, 1);
        Self { inner, compose: Box::new(compose), seen: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits a moment. Returns true if `is_done` of the number of acknowledged messages.
    pub(super) fn wait(&self, is_done: &dyn Fn(usize) -> bool) -> Result<bool, LabError> {
        let waited =
            self.changed.wait_timeout_while(self.seen(), LOOK, |seen| seen.failed.is_none() && !is_done(seen.ms.len()));
        let (seen, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(failed) = &seen.failed {
            return Err(wrong(failed));
        }
        let is_done = is_done(seen.ms.len());
        if !is_done && seen.moved.is_some_and(|moved| moved.elapsed() > LEASE) {
            let WatchedCalls { ms, sent, .. } = &*seen;
            let seconds = LEASE.as_secs();
            return Err(wrong(format!("{} of {sent} requests done, and no other for {seconds} s", ms.len())));
        }
        Ok(is_done)
    }

    /// Returns the number of acknowledged messages.
    pub(super) fn done(&self) -> usize {
        self.seen().ms.len()
    }

    /// Returns the milliseconds of the messages that were acknowledged after the first `before`.
    pub(super) fn times_since(&self, before: usize) -> Vec<f64> {
        self.seen().ms[before..].to_vec()
    }

    /// Returns the number of messages that were sent.
    pub(super) fn sent(&self) -> usize {
        self.seen().sent
    }

    /// Sends no further messages, and returns the number of those that were sent.
    pub(super) fn close(&self) -> usize {
        let mut seen = self.seen();
        seen.is_closed = true;
        seen.sent
    }

    /// Checks that each message was delivered once.
    pub(super) fn check_deliveries(&self) -> Result<(), LabError> {
        let WatchedCalls { deliveries, sent, .. } = *self.seen();
        if deliveries != sent {
            return Err(wrong(format!("{deliveries} deliveries of {sent} messages")));
        }
        Ok(())
    }

    /// Sends `count` messages, unless the queue is closed: a receiver finds as many as it asks for.
    async fn top_up(&self, count: usize) {
        let first = {
            let mut seen = self.seen();
            if seen.is_closed {
                return;
            }
            seen.sent += count;
            seen.sent - count
        };
        for request in first..first + count {
            match (self.compose)(request) {
                Ok(message) => {
                    if self.inner.send(&[message]).await[0].is_err() {
                        self.fail(format!("request {request} was not queued"));
                    }
                }
                Err(why) => self.fail(why),
            }
        }
    }

    fn seen(&self) -> MutexGuard<'_, WatchedCalls> {
        lock(&self.seen)
    }

    fn fail(&self, what: String) {
        self.seen().failed.get_or_insert(what);
        self.changed.notify_all();
    }
}

#[async_trait]
impl JobQueue for Watched {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn lease(&self) -> Duration {
        self.inner.lease()
    }

    fn max_receive(&self) -> u32 {
        self.inner.max_receive()
    }

    async fn send(&self, messages: &[Message]) -> Vec<Result<Sent, QueueError>> {
        self.inner.send(messages).await
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        self.top_up(max).await;
        // Once it is closed, no further message comes, and a receiver that waits only delays the end.
        let deliveries = self.inner.receive(max, wait.min(LOOK)).await?;
        let now = Instant::now();
        let mut seen = self.seen();
        seen.deliveries += deliveries.len();
        seen.moved.get_or_insert(now);
        seen.away.extend(deliveries.iter().map(|delivery| (delivery.receipt.clone(), now)));
        Ok(deliveries)
    }

    async fn acknowledge(&self, receipts: &[Receipt]) -> Vec<Result<(), QueueError>> {
        let results = self.inner.acknowledge(receipts).await;
        let now = Instant::now();
        let mut seen = self.seen();
        for (receipt, _) in receipts.iter().zip(&results).filter(|(_, result)| result.is_ok()) {
            if let Some(delivered) = seen.away.remove(receipt) {
                seen.ms.push((now - delivered).as_secs_f64() * 1e3);
                seen.moved = Some(now);
            }
        }
        drop(seen);
        self.changed.notify_all();
        results
    }

    async fn extend(&self, receipts: &[Receipt]) -> Vec<Result<(), QueueError>> {
        self.inner.extend(receipts).await
    }

    async fn release(&self, receipts: &[Receipt], delay: Duration) -> Vec<Result<(), QueueError>> {
        let results = self.inner.release(receipts, delay).await;
        self.fail(format!("{} messages were given back", receipts.len()));
        results
    }

    async fn renew(&self, delivery: &Delivery, delay: Duration) -> Result<(), QueueError> {
        self.inner.renew(delivery, delay).await
    }

    async fn dead_letter(&self, delivery: &Delivery, why: &DeadLetter) -> Result<(), QueueError> {
        self.fail(format!("request {} failed ({}): {}", delivery.id, why.stage, why.reason));
        self.inner.dead_letter(delivery, why).await
    }

    async fn review(&self, judge: &mut Judge<'_>) -> Result<(), QueueError> {
        self.inner.review(judge).await
    }

    async fn depth(&self) -> Result<Depth, QueueError> {
        self.inner.depth().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a queue, and its first messages.
    async fn queue(messages: usize) -> (Watched, Vec<Delivery>) {
        let queue = Watched::new(|n| Ok(Message { id: n.to_string(), body: Vec::new() }));
        let deliveries = queue.receive(messages, Duration::ZERO).await.unwrap();
        (queue, deliveries)
    }

    fn receipts(deliveries: &[Delivery]) -> Vec<Receipt> {
        deliveries.iter().map(|delivery| delivery.receipt.clone()).collect()
    }

    #[tokio::test]
    async fn an_open_queue_is_never_dry_and_a_closed_one_drains() {
        let (queue, deliveries) = queue(3).await;
        let more = queue.receive(200, Duration::ZERO).await.unwrap();
        assert_eq!((deliveries.len(), more.len(), queue.sent()), (3, 200, 203));
        assert_eq!((deliveries[0].id.as_str(), more[199].id.as_str()), ("0", "202"));
        assert_eq!(queue.close(), 203);
        assert!(queue.receive(1, Duration::ZERO).await.unwrap().is_empty());
        queue.acknowledge(&receipts(&deliveries)).await;
        assert!(!queue.wait(&|done| done >= 203).unwrap());
        queue.acknowledge(&receipts(&more)).await;
        assert!(queue.wait(&|done| done >= 203).unwrap());
        queue.check_deliveries().unwrap();
    }

    #[tokio::test]
    async fn messages_are_away_from_delivery_to_acknowledgement() {
        let (queue, deliveries) = queue(3).await;
        queue.acknowledge(&receipts(&deliveries[..1])).await;
        let before = queue.done();
        tokio::time::sleep(Duration::from_millis(20)).await;
        queue.acknowledge(&receipts(&deliveries[1..])).await;
        let times = queue.times_since(before);
        assert!(times.len() == 2 && times.iter().all(|&ms| ms >= 20.0), "{times:?}");
    }

    #[tokio::test]
    async fn what_goes_wrong_ends_the_wait() {
        let (given_back, deliveries) = queue(2).await;
        given_back.release(&receipts(&deliveries[..1]), Duration::ZERO).await;
        assert!(given_back.wait(&|_| false).unwrap_err().to_string().contains("given back"));

        let (dead, deliveries) = queue(1).await;
        let why = DeadLetter { stage: "decode".to_owned(), reason: "no photo".to_owned() };
        dead.dead_letter(&deliveries[0], &why).await.unwrap();
        let told = dead.wait(&|_| false).unwrap_err().to_string();
        assert!(told.contains("request 0 failed (decode): no photo"), "{told}");

        let (twice, deliveries) = queue(1).await;
        twice.inner.release(&receipts(&deliveries), Duration::ZERO).await;
        twice.close();
        let again = twice.receive(1, Duration::from_secs(5)).await.unwrap();
        twice.acknowledge(&receipts(&again)).await;
        assert!(twice.check_deliveries().unwrap_err().to_string().contains("2 deliveries of 1"));

        let broken = Watched::new(|_| Err("no message".to_owned()));
        assert!(broken.receive(1, Duration::ZERO).await.unwrap().is_empty());
        assert!(broken.wait(&|_| false).unwrap_err().to_string().contains("no message"));
    }
}
