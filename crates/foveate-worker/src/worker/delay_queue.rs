//! The delay queue: each entry has its own due time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::lock;

/// Returns entries when they are due, in the order of their due times, then of their arrival. It has no capacity of its
/// own: the worker's in-flight limit bounds it.
pub(crate) struct DelayQueue<T> {
    state: Mutex<DelayQueueState<T>>,
    changed: Condvar,
}

struct DelayQueueState<T> {
    entries: BinaryHeap<Reverse<DelayedEntry<T>>>,
    next: u64,
    closed: bool,
}

struct DelayedEntry<T> {
    due: (Instant, u64),
    value: T,
}

impl<T> Ord for DelayedEntry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.due.cmp(&other.due)
    }
}

impl<T> PartialOrd for DelayedEntry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for DelayedEntry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl<T> Eq for DelayedEntry<T> {}

impl<T> DelayQueue<T> {
    pub(crate) fn new() -> Self {
        let state = DelayQueueState { entries: BinaryHeap::new(), next: 0, closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds an entry that is due at `at`; gives it back if the queue is closed.
    pub(crate) fn push(&self, at: Instant, value: T) -> Result<(), T> {
        let mut state = self.lock();
        if state.closed {
            return Err(value);
        }
        let number = state.next;
        state.next += 1;
        state.entries.push(Reverse(DelayedEntry { due: (at, number), value }));
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits until an entry is due; takes it and up to `most - 1` others that are due. `None` once closed.
    pub(crate) fn pop(&self, most: usize) -> Option<Vec<T>> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            let now = Instant::now();
            let first = state.entries.peek().map(|Reverse(entry)| entry.due.0);
            state = match first {
                Some(at) if at <= now => return Some(state.take_due(now, most)),
                Some(at) => self.changed.wait_timeout(state, at - now).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Closes the queue and returns the remaining entries, due or not.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut state = self.lock();
        state.closed = true;
        let left = std::mem::take(&mut state.entries);
        drop(state);
        self.changed.notify_all();
        left.into_iter().map(|Reverse(entry)| entry.value).collect()
    }

    fn lock(&self) -> MutexGuard<'_, DelayQueueState<T>> {
        lock(&self.state)
    }
}

impl<T> DelayQueueState<T> {
    fn take_due(&mut self, now: Instant, most: usize) -> Vec<T> {
        let mut due = Vec::new();
        while due.len() < most && self.entries.peek().is_some_and(|Reverse(entry)| entry.due.0 <= now) {
            due.extend(self.entries.pop().map(|Reverse(entry)| entry.value));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn entries_come_when_they_are_due() {
        let queue = DelayQueue::new();
        let now = Instant::now();
        queue.push(now + Duration::from_millis(40), "late").unwrap();
        queue.push(now, "a").unwrap();
        queue.push(now, "b").unwrap();
        queue.push(now, "c").unwrap();
        assert_eq!(queue.pop(2), Some(vec!["a", "b"]));
        assert_eq!(queue.pop(2), Some(vec!["c"]));
        assert_eq!(queue.pop(2), Some(vec!["late"]));
        assert!(now.elapsed() >= Duration::from_millis(40));
        queue.push(now + Duration::from_secs(600), "never").unwrap();
        assert_eq!(queue.close(), ["never"]);
        assert_eq!(queue.push(now, "after"), Err("after"));
        assert_eq!(queue.pop(1), None);
    }
}
