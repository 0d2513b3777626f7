//! Limits the threads that one server occupies, so that a slow server does not block requests for others.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use crate::lock;

/// Admits a limited number of items per server. The others wait here without a thread.
pub(crate) struct Hosts<T> {
    most: usize,
    /// Servers with active items; a server is removed after its last item.
    busy: Mutex<HashMap<String, Host<T>>>,
}

struct Host<T> {
    active: usize,
    waiting: VecDeque<T>,
}

impl<T> Hosts<T> {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, busy: Mutex::default() }
    }

    /// Returns the item if it may go to `server` now, and keeps it otherwise. [`Hosts::leave`] must follow each
    /// returned item.
    pub(crate) fn enter(&self, server: &str, item: T) -> Option<T> {
        let mut busy = self.lock();
        let host = busy.entry(server.to_owned()).or_insert_with(|| Host { active: 0, waiting: VecDeque::new() });
        if host.active < self.most {
            host.active += 1;
            return Some(item);
        }
        host.waiting.push_back(item);
        None
    }

    /// Ends an item's visit to `server`. Returns the waiting item that takes its place, if any.
    pub(crate) fn leave(&self, server: &str) -> Option<T> {
        let mut busy = self.lock();
        let host = busy.get_mut(server)?;
        let next = host.waiting.pop_front();
        if next.is_none() {
            host.active -= 1;
            if host.active == 0 {
                busy.remove(server);
            }
        }
        next
    }

    /// The number of waiting items.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().values().map(|host| host.waiting.len()).sum()
    }

    /// Removes all waiting items.
    pub(crate) fn clear(&self) -> Vec<T> {
        self.lock().values_mut().flat_map(|host| host.waiting.drain(..)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Host<T>>> {
        lock(&self.busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_number_goes_to_a_server_and_the_next_follows_each() {
        let hosts = Hosts::new(2);
        assert_eq!([1, 2, 3, 4].map(|item| hosts.enter("a", item)), [Some(1), Some(2), None, None]);
        assert_eq!(hosts.enter("b", 5), Some(5));
        assert_eq!((hosts.waiting(), hosts.leave("a"), hosts.waiting()), (2, Some(3), 1));
        assert_eq!((hosts.leave("b"), hosts.leave("a"), hosts.leave("a")), (None, Some(4), None));
        assert_eq!([6, 7].map(|item| hosts.enter("a", item)), [Some(6), None]);
        assert_eq!((hosts.clear(), hosts.leave("a"), hosts.leave("a")), (vec![7], None, None));
        assert!(hosts.lock().is_empty(), "a server is remembered after its last request");
    }
}
