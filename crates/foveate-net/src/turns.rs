//! Limits the requests to one host at once, in order of arrival.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Active and waiting requests by host. A host without either is removed, so there are never more hosts than threads.
#[derive(Debug)]
pub(crate) struct HostTurns {
    most: usize,
    hosts: Mutex<HashMap<String, Host>>,
}

#[derive(Debug, Default)]
struct Host {
    active: usize,
    /// Waiting threads in order of arrival, each with its own condition variable.
    waiting: VecDeque<Arc<Condvar>>,
}

/// Permission for a request to a host, until it is dropped.
#[derive(Debug)]
pub(crate) struct HostTurn<'a> {
    turns: &'a HostTurns,
    host: String,
}

impl HostTurns {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, hosts: Mutex::default() }
    }

    /// Waits for a turn. `None` if there was none in that time.
    pub(crate) fn take(&self, host: String, patience: Duration) -> Option<HostTurn<'_>> {
        let mut hosts = self.lock();
        let entry = hosts.entry(host.clone()).or_default();
        if entry.active < self.most {
            entry.active += 1;
            return Some(HostTurn { turns: self, host });
        }
        let place = Arc::new(Condvar::new());
        entry.waiting.push_back(place.clone());
        // A finished request hands its turn to the first waiting one.
        let waited = place.wait_timeout_while(hosts, patience, |hosts| {
            hosts.get(&host).is_some_and(|entry| entry.waiting.iter().any(|other| Arc::ptr_eq(other, &place)))
        });
        let (mut hosts, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            if let Some(entry) = hosts.get_mut(&host) {
                entry.waiting.retain(|other| !Arc::ptr_eq(other, &place));
            }
            return None;
        }
        Some(HostTurn { turns: self, host })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Host>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HostTurn<'_> {
    fn drop(&mut self) {
        let mut hosts = self.turns.lock();
        let Some(entry) = hosts.get_mut(&self.host) else { return };
        match entry.waiting.pop_front() {
            Some(next) => next.notify_one(),
            None if entry.active > 1 => entry.active -= 1,
            None => drop(hosts.remove(&self.host)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn turns_are_given_in_order_and_never_too_many() {
        let turns = HostTurns::new(2);
        let active = AtomicUsize::new(0);
        let most = AtomicUsize::new(0);
        let order = Mutex::new(Vec::new());
        let held = [turns.take("a".to_owned(), LONG), turns.take("a".to_owned(), LONG)];
        thread::scope(|scope| {
            for i in 0..8 {
                let turns = &turns;
                let active = &active;
                let most = &most;
                let order = &order;
                scope.spawn(move || {
                    let turn = turns.take("a".to_owned(), LONG).unwrap();
                    most.fetch_max(active.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    order.lock().unwrap().push(i);
                    thread::sleep(Duration::from_millis(5));
                    active.fetch_sub(1, Ordering::SeqCst);
                    drop(turn);
                });
                while turns.lock()["a"].waiting.len() <= i {
                    thread::yield_now();
                }
            }
            drop(held);
        });
        assert_eq!(most.into_inner(), 2);
        let order = order.into_inner().unwrap();
        assert!(order.iter().enumerate().all(|(place, i)| place.abs_diff(*i) <= 1), "{order:?}");
        assert!(turns.lock().is_empty(), "a host is remembered after its last request");
    }

    #[test]
    fn other_hosts_do_not_wait_and_patience_ends() {
        let turns = HostTurns::new(1);
        let held = turns.take("a".to_owned(), LONG);
        assert!(turns.take("b".to_owned(), Duration::ZERO).is_some());
        assert!(turns.take("a".to_owned(), Duration::from_millis(20)).is_none());
        assert!(turns.lock()["a"].waiting.is_empty());
        drop(held);
        assert!(turns.take("a".to_owned(), Duration::ZERO).is_some());
        assert!(turns.lock().is_empty());
    }
}
