use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foveate_core::lock;
use foveate_queue::{
    Buried, DeadLetter, Delivery, Depth, Fate, JobQueue, MemoryQueue, Message, QueueError, Receipt, Sent,
};

use crate::LabError;
use crate::bench::cells::wrong;

/// A queue in memory that records how long its messages are leased.
pub(super) struct Watched {
    inner: MemoryQueue,
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Default)]
struct Seen {
    /// Time of delivery of each leased message.
    away: HashMap<Receipt, Instant>,
    deliveries: usize,
    trip: Trip,
    failed: Option<String>,
}

/// The times of all messages, from the first delivery to the last acknowledgement.
#[derive(Clone, Debug, Default)]
pub(super) struct Trip {
    first: Option<Instant>,
    last: Option<Instant>,
    /// Milliseconds from each message's delivery to its acknowledgement.
    pub(super) ms: Vec<f64>,
}

impl Trip {
    /// Returns the time from the first delivery to the last acknowledgement.
    pub(super) fn wall(&self) -> Duration {
        self.last.zip(self.first).map_or(Duration::ZERO, |(last, first)| last - first)
    }
}

/// Length of a lease. The longest timeout is shorter, so no message exceeds it.
const LEASE: Duration = Duration::from_secs(120);
/// Interval at which a wait checks for cancellation.
const LOOK: Duration = Duration::from_millis(100);

impl Watched {
    pub(super) fn new() -> Self {
        let inner = MemoryQueue::new("bench", LEASE, 1);
        Self { inner, seen: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits until `requests` messages were acknowledged, each of them delivered once.
    pub(super) fn wait(&self, go_on: &dyn Fn() -> Result<(), LabError>, requests: usize) -> Result<Trip, LabError> {
        loop {
            go_on()?;
            let waiting = |seen: &mut Seen| seen.trip.ms.len() < requests && seen.failed.is_none();
            let waited = self.changed.wait_timeout_while(self.seen(), LOOK, waiting);
            let (seen, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if let Some(failed) = &seen.failed {
                return Err(wrong(failed));
            }
            if seen.trip.ms.len() == requests {
                return match seen.deliveries == requests {
                    true => Ok(seen.trip.clone()),
                    false => Err(wrong(format!("{} deliveries of {requests} messages", seen.deliveries))),
                };
            }
            let since = seen.trip.last.or(seen.trip.first);
            if since.is_some_and(|since| since.elapsed() > LEASE) {
                let (done, seconds) = (seen.trip.ms.len(), LEASE.as_secs());
                return Err(wrong(format!("{done} of {requests} requests done, and no other for {seconds} s")));
            }
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    fn fail(&self, what: String) {
        self.seen().failed.get_or_insert(what);
        self.changed.notify_all();
    }
}

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

    fn send(&self, messages: &[Message]) -> Vec<Result<Sent, QueueError>> {
        self.inner.send(messages)
    }

    fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        // All messages were sent before, so a receiver that waits for more only delays the end.
        let deliveries = self.inner.receive(max, wait.min(LOOK))?;
        let (now, mut seen) = (Instant::now(), self.seen());
        seen.deliveries += deliveries.len();
        if !deliveries.is_empty() {
            seen.trip.first.get_or_insert(now);
        }
        seen.away.extend(deliveries.iter().map(|delivery| (delivery.receipt.clone(), now)));
        Ok(deliveries)
    }

    fn acknowledge(&self, receipts: &[Receipt]) -> Vec<Result<(), QueueError>> {
        let results = self.inner.acknowledge(receipts);
        let (now, mut seen) = (Instant::now(), self.seen());
        for (receipt, _) in receipts.iter().zip(&results).filter(|(_, result)| result.is_ok()) {
            if let Some(delivered) = seen.away.remove(receipt) {
                seen.trip.ms.push((now - delivered).as_secs_f64() * 1e3);
                seen.trip.last = Some(now);
            }
        }
        drop(seen);
        self.changed.notify_all();
        results
    }

    fn extend(&self, receipts: &[Receipt]) -> Vec<Result<(), QueueError>> {
        self.inner.extend(receipts)
    }

    fn release(&self, receipts: &[Receipt], delay: Duration) -> Vec<Result<(), QueueError>> {
        let results = self.inner.release(receipts, delay);
        self.fail(format!("{} messages were given back", receipts.len()));
        results
    }

    fn renew(&self, delivery: &Delivery, delay: Duration) -> Result<(), QueueError> {
        self.inner.renew(delivery, delay)
    }

    fn dead_letter(&self, delivery: &Delivery, why: &DeadLetter) -> Result<(), QueueError> {
        self.fail(format!("request {} failed ({}): {}", delivery.id, why.stage, why.reason));
        self.inner.dead_letter(delivery, why)
    }

    fn review(&self, judge: &mut dyn FnMut(&Buried) -> Fate) -> Result<(), QueueError> {
        self.inner.review(judge)
    }

    fn depth(&self) -> Result<Depth, QueueError> {
        self.inner.depth()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(messages: usize) -> (Watched, Vec<Delivery>) {
        let queue = Watched::new();
        let message = |n: usize| Message { id: n.to_string(), body: Vec::new() };
        queue.send(&(0..messages).map(message).collect::<Vec<_>>()).into_iter().for_each(|sent| assert!(sent.is_ok()));
        let deliveries = queue.receive(messages, Duration::ZERO).unwrap();
        (queue, deliveries)
    }

    fn receipts(deliveries: &[Delivery]) -> Vec<Receipt> {
        deliveries.iter().map(|delivery| delivery.receipt.clone()).collect()
    }

    #[test]
    fn messages_are_away_from_delivery_to_acknowledgement() {
        let (queue, deliveries) = queue(3);
        std::thread::sleep(Duration::from_millis(20));
        queue.acknowledge(&receipts(&deliveries));
        let trip = queue.wait(&|| Ok(()), 3).unwrap();
        assert!(trip.ms.len() == 3 && trip.ms.iter().all(|&ms| ms >= 20.0), "{trip:?}");
        assert!(trip.wall() >= Duration::from_millis(20));
    }

    #[test]
    fn what_goes_wrong_ends_the_wait() {
        let (given_back, deliveries) = queue(2);
        given_back.release(&receipts(&deliveries[..1]), Duration::ZERO);
        assert!(given_back.wait(&|| Ok(()), 2).unwrap_err().to_string().contains("given back"));

        let (dead, deliveries) = queue(1);
        let why = DeadLetter { stage: "decode".to_owned(), reason: "no photo".to_owned() };
        dead.dead_letter(&deliveries[0], &why).unwrap();
        let told = dead.wait(&|| Ok(()), 1).unwrap_err().to_string();
        assert!(told.contains("request 0 failed (decode): no photo"), "{told}");

        let (twice, deliveries) = queue(1);
        twice.inner.release(&receipts(&deliveries), Duration::ZERO);
        let again = twice.receive(1, Duration::from_secs(5)).unwrap();
        twice.acknowledge(&receipts(&again));
        assert!(twice.wait(&|| Ok(()), 1).unwrap_err().to_string().contains("2 deliveries of 1"));

        let (unfinished, _) = queue(1);
        let stopped = unfinished.wait(&|| Err(LabError::Interrupted), 1);
        assert!(matches!(stopped, Err(LabError::Interrupted)));
    }
}
