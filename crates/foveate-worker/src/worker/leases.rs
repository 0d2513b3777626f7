//! The messages that a worker holds, and the ends of their leases.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use foveate_queue::{Delivery, Receipt};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::in_flight_limit::Limiter;
use crate::lock;

/// Names a message while it is held.
pub(crate) type Key = u64;

/// While the bodies of the held messages exceed this size, the worker receives no more. Metadata may be large, and
/// exists in up to two copies.
const MOST_BYTES: usize = 64 << 20;
/// The interval at which a receiver that waits for room counts the stalled messages again.
const LOOK: Duration = Duration::from_millis(25);

/// The messages that the worker holds.
pub(crate) struct Leases {
    limiter: Limiter,
    state: Mutex<LeaseTable>,
    freed: Notify,
}

struct LeaseTable {
    held: HashMap<Key, HeldMessage>,
    /// Keys by queue and the broker's name of the message, because every delivery is looked up here.
    names: HashMap<(usize, String), Key>,
    of_queue: Vec<usize>,
    /// Size of all bodies.
    bytes: usize,
    next: Key,
}

struct HeldMessage {
    queue: usize,
    delivery: Arc<Delivery>,
    /// Receipt of the latest delivery.
    receipt: Receipt,
    length: Duration,
    until: Instant,
    hold: Hold,
}

/// Tells whoever works on a message whether it is still held.
#[derive(Clone, Debug)]
pub(crate) struct Hold(Arc<Flags>);

#[derive(Debug)]
struct Flags {
    is_held: AtomicBool,
    has_begun: AtomicBool,
}

impl Hold {
    fn new() -> Self {
        Self(Arc::new(Flags { is_held: AtomicBool::new(true), has_begun: AtomicBool::new(false) }))
    }

    pub(crate) fn is_held(&self) -> bool {
        self.0.is_held.load(SeqCst)
    }

    /// Returns true if both are of one message.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Records that a stage begins, if the message is still held.
    pub(crate) fn begin(&self) -> bool {
        self.0.has_begun.store(true, SeqCst);
        self.is_held()
    }

    /// Returns true if any stage has begun. A message that none has seen cannot have done harm.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.has_begun.load(SeqCst)
    }
}

impl Leases {
    /// Holds as many messages as `limiter` allows.
    pub(super) fn new(limiter: Limiter) -> Self {
        let of_queue = vec![0; limiter.queues()];
        let state = LeaseTable { held: HashMap::new(), names: HashMap::new(), of_queue, bytes: 0, next: 0 };
        Self { limiter, state: Mutex::new(state), freed: Notify::new() }
    }

    pub(super) fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Holds a message under a lease of `length` from now on.
    pub(crate) fn add(&self, queue: usize, delivery: Arc<Delivery>, length: Duration) -> (Key, Hold) {
        let mut state = self.lock();
        let receipt = delivery.receipt.clone();
        let key = state.next;
        state.next += 1;
        state.of_queue[queue] += 1;
        state.bytes += delivery.body.len();
        state.names.insert((queue, delivery.key.clone()), key);
        let hold = Hold::new();
        let until = Instant::now() + length;
        state.held.insert(key, HeldMessage { queue, delivery, receipt, length, until, hold: hold.clone() });
        (key, hold)
    }

    /// Renews the lease and the receipt of a message that is held already, because its broker crashed and delivered it
    /// again. Returns whether the message is held: nothing is done twice then.
    pub(crate) fn renew(&self, queue: usize, delivery: &Delivery) -> bool {
        let mut state = self.lock();
        let Some(&key) = state.names.get(&(queue, delivery.key.clone())) else { return false };
        let Some(lease) = state.held.get_mut(&key) else { return false };
        lease.receipt = delivery.receipt.clone();
        lease.until = Instant::now() + lease.length;
        true
    }

    /// Returns true if the bodies of the held messages leave no room for more.
    pub(super) fn is_full(&self) -> bool {
        self.lock().bytes >= MOST_BYTES
    }

    /// The receipt of a message's latest delivery, while it is held.
    pub(crate) fn receipt(&self, key: Key) -> Option<Receipt> {
        self.lock().held.get(&key).map(|lease| lease.receipt.clone())
    }

    /// Ends a delivery that was settled, or whose lease is over. Returns whether it was the latest one, so that the
    /// message is no longer held.
    pub(crate) fn ended(&self, key: Key, receipt: &Receipt) -> bool {
        let mut state = self.lock();
        let is_latest = state.held.get(&key).is_some_and(|lease| lease.receipt == *receipt);
        let removed = is_latest && state.remove(key).is_some();
        drop(state);
        self.freed.notify_waiters();
        removed
    }

    /// Waits for room within the in-flight limit of a queue. Returns how many messages fit. Those that are `stalled`,
    /// of any queue, leave room for others, and for as many more: the longer the row of dead hosts at the head of a
    /// queue, the larger the steps past it.
    pub(crate) async fn room(&self, queue: usize, stalled: impl Fn() -> usize) -> usize {
        loop {
            let freed = self.freed.notified();
            let room = self.room_now(queue, stalled());
            if room > 0 {
                return room;
            }
            // No event reports that messages stall.
            let _ = timeout(LOOK, freed).await;
        }
    }

    fn room_now(&self, queue: usize, stalled: usize) -> usize {
        let stalled = stalled + stalled.min(self.limiter.most());
        let state = self.lock();
        let of_queue = (self.limiter.of_queue(queue) + stalled).saturating_sub(state.of_queue[queue]);
        let of_all = (self.limiter.total() + stalled).saturating_sub(state.held.len());
        if state.bytes >= MOST_BYTES { 0 } else { of_queue.min(of_all) }
    }

    /// The messages of a queue whose leases have passed a third of their time.
    pub(crate) fn due(&self, queue: usize) -> Vec<(Key, Receipt)> {
        let now = Instant::now();
        let mut due = Vec::new();
        for (&key, lease) in &self.lock().held {
            if lease.queue == queue && lease.until < now + lease.length * 2 / 3 {
                due.push((key, lease.receipt.clone()));
            }
        }
        due
    }

    /// Restarts a lease that the broker extended; `asked` is the time of the request.
    pub(crate) fn extended(&self, key: Key, asked: Instant) {
        if let Some(lease) = self.lock().held.get_mut(&key) {
            lease.until = asked + lease.length;
        }
    }

    /// Gives up the messages whose leases have ended. Returns their number.
    pub(crate) fn expire(&self) -> usize {
        let now = Instant::now();
        let mut state = self.lock();
        let ended: Vec<Key> = state.held.iter().filter(|(_, lease)| lease.until <= now).map(|(&key, _)| key).collect();
        for &key in &ended {
            state.remove(key);
        }
        drop(state);
        self.freed.notify_waiters();
        ended.len()
    }

    /// Gives up all messages of a queue. Returns their latest deliveries, and whether any stage has begun with them.
    pub(crate) fn take(&self, queue: usize) -> Vec<(Delivery, bool)> {
        let mut state = self.lock();
        let keys: Vec<Key> = state.held.iter().filter(|(_, lease)| lease.queue == queue).map(|(&key, _)| key).collect();
        let latest = keys
            .into_iter()
            .filter_map(|key| state.remove(key))
            .map(|lease| (Delivery { receipt: lease.receipt, ..(*lease.delivery).clone() }, lease.hold.has_begun()));
        latest.collect()
    }

    pub(crate) fn is_held(&self, key: Key) -> bool {
        self.lock().held.contains_key(&key)
    }

    pub(crate) fn held(&self) -> usize {
        self.lock().held.len()
    }

    fn lock(&self) -> MutexGuard<'_, LeaseTable> {
        lock(&self.state)
    }
}

impl LeaseTable {
    fn remove(&mut self, key: Key) -> Option<HeldMessage> {
        let lease = self.held.remove(&key)?;
        lease.hold.0.is_held.store(false, SeqCst);
        self.of_queue[lease.queue] -= 1;
        self.bytes -= lease.delivery.body.len();
        self.names.remove(&(lease.queue, lease.delivery.key.clone()));
        Some(lease)
    }
}

#[cfg(test)]
mod tests {
    use super::super::in_flight_limit::InFlightLimit;
    use super::*;

    /// Leases of `queues` queues that may each hold `messages` messages.
    fn leases(queues: usize, messages: usize) -> Leases {
        let length = Duration::from_secs(600);
        Leases::new(Limiter::new(InFlightLimit::Fixed(messages), vec![length; queues], 1, 1_000))
    }

    fn delivery(key: &str, receipt: &str) -> Arc<Delivery> {
        let (id, key, receipt) = ("id".to_owned(), key.to_owned(), Receipt(receipt.to_owned()));
        Arc::new(Delivery { id, key, body: b"{}".to_vec(), receipt, received: 1, sent: None, failing_since: None })
    }

    #[test]
    fn a_message_that_is_held_goes_on_under_its_latest_receipt() {
        let leases = leases(2, 10);
        let (key, hold) = leases.add(0, delivery("a", "1"), Duration::from_millis(50));
        std::thread::sleep(Duration::from_millis(30));
        assert!(!leases.renew(1, &delivery("a", "2")), "of another queue");
        assert!(!leases.renew(0, &delivery("b", "2")), "another message with the same id");
        assert!(leases.renew(0, &delivery("a", "2")));
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!((leases.expire(), hold.is_held(), leases.held()), (0, true, 1));
        assert_eq!(leases.receipt(key), Some(Receipt("2".to_owned())));
        assert!(!leases.ended(key, &Receipt("1".to_owned())) && hold.is_held(), "the first delivery, not this one");
        assert!(leases.ended(key, &Receipt("2".to_owned())) && !hold.is_held());
        assert_eq!(leases.receipt(key), None);
        assert!(!leases.renew(0, &delivery("a", "3")));
    }

    #[test]
    fn large_bodies_leave_no_room_for_more() {
        let leases = leases(1, 10);
        let large = Delivery { body: vec![b' '; MOST_BYTES], ..(*delivery("a", "1")).clone() };
        let (key, _) = leases.add(0, Arc::new(large), Duration::from_secs(600));
        assert_eq!(leases.room_now(0, 0), 0);
        assert!(leases.ended(key, &Receipt("1".to_owned())));
        assert_eq!(leases.room_now(0, 0), 10);
    }

    #[tokio::test]
    async fn a_lease_is_due_expires_and_frees_its_room() {
        let leases = leases(2, 2);
        let receipt = Receipt("1".to_owned());
        let (short, hold) = leases.add(0, delivery("a", "1"), Duration::from_millis(30));
        let (long, _) = leases.add(0, delivery("b", "1"), Duration::from_secs(600));
        assert!(leases.due(0).is_empty() && leases.due(1).is_empty());
        assert_eq!(leases.room_now(0, 0), 0);
        assert_eq!(leases.room_now(1, 0), 2);
        assert_eq!(leases.room_now(0, 1), 2, "one of them only waits for a slow server");
        std::thread::sleep(Duration::from_millis(15));
        assert_eq!(leases.due(0).into_iter().map(|(key, _)| key).collect::<Vec<_>>(), [short]);
        leases.extended(short, Instant::now());
        assert_eq!(leases.expire(), 0);
        std::thread::sleep(Duration::from_millis(35));
        assert!(hold.is_held());
        assert_eq!(leases.expire(), 1);
        assert!(!hold.is_held() && !leases.ended(short, &receipt));
        assert_eq!(leases.room_now(0, 0), 1);
        leases.add(0, delivery("d", "1"), Duration::from_secs(600));
        let freed = async {
            tokio::task::yield_now().await;
            assert!(leases.ended(long, &receipt));
        };
        assert_eq!(tokio::join!(leases.room(0, || 0), freed).0, 1);
        leases.add(1, delivery("c", "1"), Duration::ZERO);
        assert_eq!((leases.take(0).len(), leases.take(1).len(), leases.held()), (1, 1, 0));
    }
}
