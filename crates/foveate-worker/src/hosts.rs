//! Requests for one server wait in a line of their own, so that a slow one does not keep every thread from the others.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use crate::lock;

/// Lets so many items at a time go to each server. The others wait here, and hold no thread.
pub(crate) struct Hosts<T> {
    most: usize,
    /// Servers to which somebody goes; they are forgotten after the last one.
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

    /// The item again, if it may go to `server` now; its end has to be told by [`Hosts::leave`]. Otherwise it is kept.
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

    /// An item is back from `server`. The one that goes in its place, if one waits.
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

    /// Items that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().values().map(|host| host.waiting.len()).sum()
    }

    /// Takes out all that wait.
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
    fn so_many_go_to_a_server_and_the_next_follows_each() {
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
