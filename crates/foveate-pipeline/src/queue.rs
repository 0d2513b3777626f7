//! Bounded queues that measure their occupancy and how long their producers and consumers waited.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foveate_core::lock;
use foveate_profile::Trace;

use crate::RunError;

/// A queue's statistics over a run. The bottleneck is where occupancy drops from high to low.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueStats {
    /// The queue's name.
    pub name: &'static str,
    /// The entries that it is to hold at most; more batches than that may come in, because those begun are finished.
    pub capacity: usize,
    /// Entries that passed through.
    pub passed: u64,
    /// Mean share of the capacity in use, over time, 0..=1.
    pub occupancy: f64,
    /// Time producers waited for room, summed over threads.
    pub producer_wait: Duration,
    /// Time consumers waited for entries, summed over threads.
    pub consumer_wait: Duration,
}

/// The queue was closed before the entry could be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

/// The result of [`Queue::pop_until`].
#[derive(Debug, PartialEq, Eq)]
pub enum Popped<T> {
    /// An entry.
    Entry(T),
    /// No entry arrived in time.
    TimedOut,
    /// The queue is closed and empty.
    Closed,
}

/// A FIFO between threads, bounded in entries and in their total weight (bytes).
pub struct Queue<T> {
    state: Mutex<FifoState<T>>,
    room: Condvar,
    filled: Condvar,
    max_weight: u64,
}

struct FifoState<T> {
    entries: VecDeque<(T, u64)>,
    weight: u64,
    /// No entry may be added; the remaining ones are still handed out.
    closed: bool,
    clock: OccupancyClock,
}

/// Integrates a queue's length over time.
struct OccupancyClock {
    name: &'static str,
    capacity: usize,
    trace: Option<Trace>,
    started: Instant,
    changed: Instant,
    length: usize,
    length_seconds: f64,
    passed: u64,
    producer_wait: Duration,
    consumer_wait: Duration,
}

impl OccupancyClock {
    fn new(name: &'static str, capacity: usize, trace: Option<Trace>) -> Self {
        let now = Instant::now();
        Self {
            name,
            capacity: capacity.max(1),
            trace,
            started: now,
            changed: now,
            length: 0,
            length_seconds: 0.0,
            passed: 0,
            producer_wait: Duration::ZERO,
            consumer_wait: Duration::ZERO,
        }
    }

    fn now_holds(&mut self, length: usize) {
        let now = Instant::now();
        self.length_seconds += self.length.min(self.capacity) as f64 * (now - self.changed).as_secs_f64();
        self.changed = now;
        self.length = length;
        if let Some(trace) = &self.trace {
            trace.counter(self.name, length as u64);
        }
    }

    fn stats(&mut self) -> QueueStats {
        self.now_holds(self.length);
        let elapsed = (self.changed - self.started).as_secs_f64();
        let full = elapsed * self.capacity as f64;
        QueueStats {
            name: self.name,
            capacity: self.capacity,
            passed: self.passed,
            occupancy: if full > 0.0 { self.length_seconds / full } else { 0.0 },
            producer_wait: self.producer_wait,
            consumer_wait: self.consumer_wait,
        }
    }
}

/// Waits while `blocked`, and returns the time waited.
fn wait_while<'a, S>(
    condvar: &Condvar,
    mut guard: MutexGuard<'a, S>,
    blocked: impl Fn(&S) -> bool,
) -> (MutexGuard<'a, S>, Duration) {
    if !blocked(&guard) {
        return (guard, Duration::ZERO);
    }
    let start = Instant::now();
    while blocked(&guard) {
        guard = condvar.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
    (guard, start.elapsed())
}

impl<T> Queue<T> {
    /// Creates a queue of at most `capacity` entries (at least one) with at most `max_weight` in total. A single
    /// heavier entry passes alone.
    pub fn new(name: &'static str, capacity: usize, max_weight: u64, trace: Option<Trace>) -> Self {
        let clock = OccupancyClock::new(name, capacity, trace);
        let state = FifoState { entries: VecDeque::new(), weight: 0, closed: false, clock };
        Self { state: Mutex::new(state), room: Condvar::new(), filled: Condvar::new(), max_weight }
    }

    /// Waits for room, then adds an entry.
    ///
    /// # Errors
    /// [`Closed`]; the entry is dropped.
    pub fn push(&self, entry: T, weight: u64) -> Result<(), Closed> {
        let (mut state, waited) = wait_while(&self.room, lock(&self.state), |state| {
            let heavy = !state.entries.is_empty() && state.weight.saturating_add(weight) > self.max_weight;
            !state.closed && (state.entries.len() >= state.clock.capacity || heavy)
        });
        state.clock.producer_wait += waited;
        if state.closed {
            return Err(Closed);
        }
        state.entries.push_back((entry, weight));
        state.weight += weight;
        let length = state.entries.len();
        state.clock.now_holds(length);
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Waits for an entry; `None` once the queue is closed and empty.
    pub fn pop(&self) -> Option<T> {
        let (mut state, waited) =
            wait_while(&self.filled, lock(&self.state), |state| state.entries.is_empty() && !state.closed);
        state.clock.consumer_wait += waited;
        self.take(state)
    }

    /// Waits for an entry until `deadline` at the latest.
    pub fn pop_until(&self, deadline: Instant) -> Popped<T> {
        let start = Instant::now();
        let mut state = lock(&self.state);
        while state.entries.is_empty() && !state.closed {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.clock.consumer_wait += start.elapsed();
                return Popped::TimedOut;
            }
            state = self.filled.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.clock.consumer_wait += start.elapsed();
        self.take(state).map_or(Popped::Closed, Popped::Entry)
    }

    fn take(&self, mut state: MutexGuard<'_, FifoState<T>>) -> Option<T> {
        let (entry, weight) = state.entries.pop_front()?;
        state.weight -= weight;
        state.clock.passed += 1;
        let length = state.entries.len();
        state.clock.now_holds(length);
        drop(state);
        // One heavy entry can leave room for several producers' entries.
        self.room.notify_all();
        Some(entry)
    }

    /// The number of entries in the queue.
    pub fn len(&self) -> usize {
        lock(&self.state).entries.len()
    }

    /// Returns true if the queue has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends input: producers are refused, consumers get the remaining entries.
    pub fn close(&self) {
        lock(&self.state).closed = true;
        self.wake_all();
    }

    /// Closes the queue and drops the remaining entries, so that no consumer works on them.
    pub fn abort(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.weight = 0;
        let dropped = std::mem::take(&mut state.entries);
        state.clock.now_holds(0);
        drop(state);
        // Entries may be large: other threads need not wait for their memory to be freed.
        drop(dropped);
        self.wake_all();
    }

    /// The statistics since the queue was created.
    pub fn stats(&self) -> QueueStats {
        lock(&self.state).clock.stats()
    }

    fn wake_all(&self) {
        self.room.notify_all();
        self.filled.notify_all();
    }
}

/// Returns entries in the order of their numbers, in whichever order they arrive. Adding an entry never waits: the
/// producers' supply of batches bounds it.
pub(crate) struct Reorder<T> {
    state: Mutex<ReorderState<T>>,
    filled: Condvar,
}

struct ReorderState<T> {
    waiting: BTreeMap<u64, T>,
    next: u64,
    closed: bool,
    clock: OccupancyClock,
}

impl<T> ReorderState<T> {
    fn next_in_turn(&mut self) -> Option<T> {
        let entry = self.waiting.remove(&self.next)?;
        self.next += 1;
        self.clock.passed += 1;
        self.clock.now_holds(self.waiting.len());
        Some(entry)
    }
}

impl<T> Reorder<T> {
    pub(crate) fn new(name: &'static str, capacity: usize, trace: Option<Trace>) -> Self {
        let clock = OccupancyClock::new(name, capacity, trace);
        let state = ReorderState { waiting: BTreeMap::new(), next: 0, closed: false, clock };
        Self { state: Mutex::new(state), filled: Condvar::new() }
    }

    pub(crate) fn push(&self, number: u64, entry: T) {
        let mut state = lock(&self.state);
        if !state.closed {
            state.waiting.insert(number, entry);
            let length = state.waiting.len();
            state.clock.now_holds(length);
        }
        drop(state);
        // Any of several consumers may take the number that is next.
        self.filled.notify_all();
    }

    /// Waits for the next number in order; `None` once closed without it.
    pub(crate) fn pop(&self) -> Option<T> {
        let (mut state, waited) = wait_while(&self.filled, lock(&self.state), |state| {
            !state.closed && !state.waiting.contains_key(&state.next)
        });
        state.clock.consumer_wait += waited;
        state.next_in_turn()
    }

    /// Returns the next number in order, if it has arrived.
    pub(crate) fn try_pop(&self) -> Option<T> {
        lock(&self.state).next_in_turn()
    }

    /// Records that a producer waited before it could make an entry.
    pub(crate) fn producer_waited(&self, waited: Duration) {
        lock(&self.state).clock.producer_wait += waited;
    }

    /// Ends input.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.filled.notify_all();
    }

    /// Closes and drops the remaining entries.
    pub(crate) fn abort(&self) {
        let dropped = std::mem::take(&mut lock(&self.state).waiting);
        drop(dropped);
        self.close();
    }

    pub(crate) fn stats(&self) -> QueueStats {
        lock(&self.state).clock.stats()
    }
}

/// A pool of reusable buffers: `take` returns a free one, or makes one below the limit.
pub(crate) struct Pool<T> {
    state: Mutex<PoolState<T>>,
    returned: Condvar,
    make: Box<Make<T>>,
}

type Make<T> = dyn Fn() -> Result<T, RunError> + Send + Sync;

struct PoolState<T> {
    free: Vec<T>,
    may_make: usize,
    closed: bool,
}

impl<T> PoolState<T> {
    fn is_empty(&self) -> bool {
        self.free.is_empty() && self.may_make == 0
    }
}

impl<T> Pool<T> {
    /// Creates a pool of at most `limit` buffers, each made when first needed.
    pub(crate) fn new(limit: usize, make: impl Fn() -> Result<T, RunError> + Send + Sync + 'static) -> Self {
        let state = PoolState { free: Vec::new(), may_make: limit.max(1), closed: false };
        Self { state: Mutex::new(state), returned: Condvar::new(), make: Box::new(make) }
    }

    /// Waits for a buffer and returns it with the time waited; `None` once the pool is closed.
    pub(crate) fn take(&self) -> Result<(Option<T>, Duration), RunError> {
        let (state, waited) = wait_while(&self.returned, lock(&self.state), |state| !state.closed && state.is_empty());
        Ok((self.take_from(state)?, waited))
    }

    /// Returns a buffer if one is free or may be made.
    pub(crate) fn try_take(&self) -> Result<Option<T>, RunError> {
        self.take_from(lock(&self.state))
    }

    fn take_from(&self, mut state: MutexGuard<'_, PoolState<T>>) -> Result<Option<T>, RunError> {
        if state.closed || state.is_empty() {
            return Ok(None);
        }
        if let Some(buffer) = state.free.pop() {
            return Ok(Some(buffer));
        }
        state.may_make -= 1;
        drop(state);
        (self.make)().map(Some)
    }

    pub(crate) fn give(&self, buffer: T) {
        lock(&self.state).free.push(buffer);
        self.returned.notify_one();
    }

    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.returned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_order_and_close_lets_them_out() {
        let queue = Queue::new("test", 8, 100, None);
        (0..5).for_each(|n| queue.push(n, 1).unwrap());
        queue.close();
        assert_eq!(queue.push(9, 1), Err(Closed));
        assert_eq!(std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(queue.stats().passed, 5);
    }

    #[test]
    fn weight_bounds_the_queue_but_never_blocks_a_lone_entry() {
        let queue = Queue::new("test", 8, 10, None);
        queue.push("heavy", 1_000).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| queue.push("light", 1).unwrap());
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(lock(&queue.state).entries.len(), 1);
            assert_eq!(queue.pop(), Some("heavy"));
            assert_eq!(queue.pop(), Some("light"));
        });
        assert!(queue.stats().producer_wait > Duration::from_millis(10));
    }

    #[test]
    fn waiting_for_an_entry_ends_at_the_deadline() {
        let queue = Queue::new("test", 8, 10, None);
        let soon = || Instant::now() + Duration::from_millis(20);
        assert_eq!(queue.pop_until(soon()), Popped::TimedOut);
        queue.push(1, 1).unwrap();
        assert_eq!(queue.pop_until(Instant::now()), Popped::Entry(1));
        queue.push(2, 1).unwrap();
        queue.close();
        assert_eq!([queue.pop_until(soon()), queue.pop_until(soon())], [Popped::Entry(2), Popped::Closed]);
    }

    #[test]
    fn abort_wakes_everyone_and_drops_the_rest() {
        let queue = Queue::new("test", 1, 10, None);
        queue.push(1, 1).unwrap();
        std::thread::scope(|scope| {
            let blocked = scope.spawn(|| queue.push(2, 1));
            std::thread::sleep(Duration::from_millis(10));
            queue.abort();
            assert_eq!(blocked.join().unwrap(), Err(Closed));
        });
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn reorder_restores_the_order_and_stops_at_a_gap() {
        let reorder = Reorder::new("test", 4, None);
        [2, 0, 1, 4].into_iter().for_each(|n| reorder.push(n, n));
        reorder.close();
        assert_eq!(std::iter::from_fn(|| reorder.pop()).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn a_pool_makes_no_more_than_its_limit() {
        let pool = Pool::new(2, || Ok(Vec::<u8>::new()));
        let take = || pool.take().unwrap().0;
        let (a, _b) = (take().unwrap(), take().unwrap());
        assert!(pool.try_take().unwrap().is_none());
        std::thread::scope(|scope| {
            let third = scope.spawn(|| take().is_some());
            std::thread::sleep(Duration::from_millis(10));
            assert!(!third.is_finished());
            pool.give(a);
            assert!(third.join().unwrap());
        });
        pool.close();
        assert!(take().is_none());
    }
}
