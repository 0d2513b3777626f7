//! The messages that this worker holds, and until when they are its own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foveate_queue::{Delivery, Receipt};

use crate::lock;

/// Names a message while it is held.
pub(crate) type Key = u64;

/// While bodies of so many bytes are held, no more messages are taken: callers' metadata may be large, and there is a copy
/// or two of it.
const MOST_BYTES: usize = 64 << 20;

pub(crate) struct Leases {
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    held: HashMap<Key, Lease>,
    /// By queue and the broker's name: every delivery asks whether its message is one of them.
    names: HashMap<(usize, String), Key>,
    of_queue: Vec<usize>,
    /// Of the bodies of all of them.
    bytes: usize,
    next: Key,
}

struct Lease {
    queue: usize,
    delivery: Arc<Delivery>,
    /// Of its latest delivery.
    receipt: Receipt,
    length: Duration,
    until: Instant,
    is_held: Arc<AtomicBool>,
}

/// Whether a message is still held; for whoever works on it.
#[derive(Clone, Debug)]
pub(crate) struct Hold(Arc<AtomicBool>);

impl Hold {
    pub(crate) fn is_held(&self) -> bool {
        self.0.load(SeqCst)
    }
}

impl Leases {
    pub(crate) fn new(queues: usize) -> Self {
        let state = State { held: HashMap::new(), names: HashMap::new(), of_queue: vec![0; queues], bytes: 0, next: 0 };
        Self { state: Mutex::new(state), freed: Condvar::new() }
    }

    /// A message was received, for `length` from now on.
    pub(crate) fn add(&self, queue: usize, delivery: Arc<Delivery>, length: Duration) -> (Key, Hold) {
        let mut state = self.lock();
        let receipt = delivery.receipt.clone();
        let key = state.next;
        state.next += 1;
        state.of_queue[queue] += 1;
        state.bytes += delivery.body.len();
        state.names.insert((queue, delivery.key.clone()), key);
        let is_held = Arc::new(AtomicBool::new(true));
        let hold = Hold(Arc::clone(&is_held));
        state.held.insert(key, Lease { queue, delivery, receipt, length, until: Instant::now() + length, is_held });
        (key, hold)
    }

    /// A broker that crashed may deliver a message that is held here. Whether it is one: it goes on then, under the lease
    /// and the receipt of the new delivery, and nothing is done twice.
    pub(crate) fn is_again(&self, queue: usize, delivery: &Delivery) -> bool {
        let mut state = self.lock();
        let Some(&key) = state.names.get(&(queue, delivery.key.clone())) else { return false };
        let Some(lease) = state.held.get_mut(&key) else { return false };
        lease.receipt = delivery.receipt.clone();
        lease.until = Instant::now() + lease.length;
        true
    }

    /// The receipt of the latest delivery of a message, while it is held.
    pub(crate) fn receipt(&self, key: Key) -> Option<Receipt> {
        self.lock().held.get(&key).map(|lease| lease.receipt.clone())
    }

    /// A delivery has ended: it was settled, or its lease is over. Whether the message was held by that delivery, and is not
    /// now.
    pub(crate) fn ended(&self, key: Key, receipt: &Receipt) -> bool {
        let mut state = self.lock();
        let is_it = |lease: &Lease| lease.receipt == *receipt;
        let removed = state.held.get(&key).is_some_and(is_it) && state.remove(key);
        drop(state);
        self.freed.notify_all();
        removed
    }

    /// Waits, no longer than `patience`, for fewer than `limit()` messages of the queue to be held; how many more may be.
    pub(crate) fn room(&self, queue: usize, limit: impl Fn() -> usize, patience: Duration) -> usize {
        let until = Instant::now() + patience;
        let mut state = self.lock();
        loop {
            let is_full = state.bytes >= MOST_BYTES;
            let room = if is_full { 0 } else { limit().saturating_sub(state.of_queue[queue]) };
            let left = until.saturating_duration_since(Instant::now());
            if room > 0 || left.is_zero() {
                return room;
            }
            state = self.freed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The messages of a queue whose leases are past a third.
    pub(crate) fn due(&self, queue: usize) -> Vec<(Key, Receipt)> {
        let now = Instant::now();
        let is_due = |lease: &Lease| lease.queue == queue && lease.until < now + lease.length * 2 / 3;
        let state = self.lock();
        let due = state.held.iter().filter(|(_, lease)| is_due(lease));
        due.map(|(&key, lease)| (key, lease.receipt.clone())).collect()
    }

    /// A lease was started anew, `asked` being when the broker was asked to.
    pub(crate) fn extended(&self, key: Key, asked: Instant) {
        if let Some(lease) = self.lock().held.get_mut(&key) {
            lease.until = asked + lease.length;
        }
    }

    /// Gives up the messages whose leases have ended; how many those were.
    pub(crate) fn expire(&self) -> usize {
        let now = Instant::now();
        let mut state = self.lock();
        let ended: Vec<Key> = state.held.iter().filter(|(_, lease)| lease.until <= now).map(|(&key, _)| key).collect();
        for &key in &ended {
            state.remove(key);
        }
        drop(state);
        self.freed.notify_all();
        ended.len()
    }

    /// Gives up all messages of a queue.
    pub(crate) fn take(&self, queue: usize) -> Vec<Receipt> {
        let mut state = self.lock();
        let keys: Vec<Key> = state.held.iter().filter(|(_, lease)| lease.queue == queue).map(|(&key, _)| key).collect();
        let receipts = keys.iter().filter_map(|key| state.held.get(key)).map(|lease| lease.receipt.clone()).collect();
        for key in keys {
            state.remove(key);
        }
        receipts
    }

    pub(crate) fn is_held(&self, key: Key) -> bool {
        self.lock().held.contains_key(&key)
    }

    pub(crate) fn held(&self) -> usize {
        self.lock().held.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    fn remove(&mut self, key: Key) -> bool {
        let Some(lease) = self.held.remove(&key) else { return false };
        lease.is_held.store(false, SeqCst);
        self.of_queue[lease.queue] -= 1;
        self.bytes -= lease.delivery.body.len();
        self.names.remove(&(lease.queue, lease.delivery.key.clone()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(key: &str, receipt: &str) -> Arc<Delivery> {
        let (id, key, receipt) = ("id".to_owned(), key.to_owned(), Receipt(receipt.to_owned()));
        Arc::new(Delivery { id, key, body: b"{}".to_vec(), receipt, received: 1, sent: None })
    }

    #[test]
    fn a_message_that_is_held_goes_on_under_its_latest_receipt() {
        let leases = Leases::new(2);
        let (key, hold) = leases.add(0, delivery("a", "1"), Duration::from_millis(50));
        std::thread::sleep(Duration::from_millis(30));
        assert!(!leases.is_again(1, &delivery("a", "2")), "of another queue");
        assert!(!leases.is_again(0, &delivery("b", "2")), "another message with the same id");
        assert!(leases.is_again(0, &delivery("a", "2")));
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!((leases.expire(), hold.is_held(), leases.held()), (0, true, 1));
        assert_eq!(leases.receipt(key), Some(Receipt("2".to_owned())));
        assert!(!leases.ended(key, &Receipt("1".to_owned())) && hold.is_held(), "the first delivery, not this one");
        assert!(leases.ended(key, &Receipt("2".to_owned())) && !hold.is_held());
        assert_eq!(leases.receipt(key), None);
        assert!(!leases.is_again(0, &delivery("a", "3")));
    }

    #[test]
    fn large_bodies_leave_no_room_for_more() {
        let leases = Leases::new(1);
        let large = Delivery { body: vec![b' '; MOST_BYTES], ..(*delivery("a", "1")).clone() };
        let (key, _) = leases.add(0, Arc::new(large), Duration::from_secs(600));
        assert_eq!(leases.room(0, || 10, Duration::ZERO), 0);
        assert!(leases.ended(key, &Receipt("1".to_owned())));
        assert_eq!(leases.room(0, || 10, Duration::ZERO), 10);
    }

    #[test]
    fn a_lease_is_due_expires_and_frees_its_room() {
        let leases = Leases::new(2);
        let receipt = Receipt("1".to_owned());
        let (short, hold) = leases.add(0, delivery("a", "1"), Duration::from_millis(30));
        let (long, _) = leases.add(0, delivery("b", "1"), Duration::from_secs(600));
        assert!(leases.due(0).is_empty() && leases.due(1).is_empty());
        assert_eq!(leases.room(0, || 2, Duration::ZERO), 0);
        assert_eq!(leases.room(1, || 2, Duration::ZERO), 2);
        std::thread::sleep(Duration::from_millis(15));
        assert_eq!(leases.due(0).into_iter().map(|(key, _)| key).collect::<Vec<_>>(), [short]);
        leases.extended(short, Instant::now());
        assert_eq!(leases.expire(), 0);
        std::thread::sleep(Duration::from_millis(35));
        assert!(hold.is_held());
        assert_eq!(leases.expire(), 1);
        assert!(!hold.is_held() && !leases.ended(short, &receipt));
        assert_eq!(leases.room(0, || 2, Duration::ZERO), 1);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| leases.room(0, || 1, Duration::from_secs(10)));
            std::thread::sleep(Duration::from_millis(10));
            assert!(leases.ended(long, &receipt));
            assert_eq!(waits.join().unwrap(), 1);
        });
        leases.add(1, delivery("c", "1"), Duration::ZERO);
        assert_eq!((leases.take(0).len(), leases.take(1).len(), leases.held()), (0, 1, 0));
    }
}
