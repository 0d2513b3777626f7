//! A queue for threads that is fair by site: many images, or images that take long, delay those of other sites little.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::lock;

/// Items of sites. The site whose items have taken the least time of threads is next.
pub(crate) struct FairQueue<T> {
    state: Mutex<FairQueueState<T>>,
    changed: Condvar,
}

struct FairQueueState<T> {
    /// Sites with waiting items, and those whose items are under way.
    sites: HashMap<String, SiteLine<T>>,
    /// The time that the site of the last item had spent. A new site begins there: what it did not use is lost.
    now: Duration,
    waiting: usize,
    is_closed: bool,
}

struct SiteLine<T> {
    spent: Duration,
    waiting: VecDeque<T>,
    under_way: usize,
}

impl<T> FairQueue<T> {
    pub(crate) fn new() -> Self {
        let state = FairQueueState { sites: HashMap::new(), now: Duration::ZERO, waiting: 0, is_closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds an item of `site`. Drops it once the queue is closed.
    pub(crate) fn push(&self, site: &str, item: T) {
        let mut state = lock(&self.state);
        if state.is_closed {
            return;
        }
        let new = SiteLine { spent: state.now, waiting: VecDeque::new(), under_way: 0 };
        state.sites.entry(site.to_owned()).or_insert(new).waiting.push_back(item);
        state.waiting += 1;
        drop(state);
        self.changed.notify_one();
    }

    /// Waits for the next item; `None` once the queue is closed.
    pub(crate) fn pop(&self) -> Option<T> {
        let state = lock(&self.state);
        let waited = self.changed.wait_while(state, |state| state.waiting == 0 && !state.is_closed);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let sites = state.sites.values_mut().filter(|line| !line.waiting.is_empty());
        let line = sites.min_by_key(|line| line.spent)?;
        let item = line.waiting.pop_front()?;
        line.under_way += 1;
        let spent = line.spent;
        state.now = state.now.max(spent);
        state.waiting -= 1;
        Some(item)
    }

    /// Records that an item of `site` took `time`.
    pub(crate) fn done(&self, site: &str, time: Duration) {
        let mut state = lock(&self.state);
        let Some(line) = state.sites.get_mut(site) else { return };
        line.spent += time;
        line.under_way -= 1;
        if line.under_way == 0 && line.waiting.is_empty() {
            state.sites.remove(site);
        }
    }

    /// The number of waiting items.
    pub(crate) fn len(&self) -> usize {
        lock(&self.state).waiting
    }

    /// Drops all items, and takes no more.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        state.waiting = 0;
        let sites = std::mem::take(&mut state.sites);
        drop(state);
        // Items report their outcomes when they are dropped.
        drop(sites);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_site_that_has_taken_the_least_time_is_next() {
        let queue = FairQueue::new();
        (0..3).for_each(|_| queue.push("heavy", "heavy"));
        (0..3).for_each(|_| queue.push("light", "light"));
        let mut order = Vec::new();
        while queue.len() > 0 {
            let site = queue.pop().unwrap();
            queue.done(site, if site == "heavy" { SECOND } else { SECOND / 10 });
            order.push(site);
        }
        assert_eq!(order[2..], ["light", "light", "heavy", "heavy"], "{order:?}");
    }

    #[test]
    fn a_site_gains_nothing_by_waiting() {
        let queue = FairQueue::new();
        (0..2).for_each(|_| queue.push("old", "old"));
        assert_eq!(queue.pop(), Some("old"));
        queue.done("old", 10 * SECOND);
        assert_eq!(queue.pop(), Some("old"));
        (0..3).for_each(|_| queue.push("new", "new"));
        queue.push("old", "old");
        assert_eq!(queue.pop(), Some("new"));
        queue.done("new", SECOND);
        assert_eq!(queue.pop(), Some("old"), "it begins where the others are");
        queue.close();
        queue.push("old", "old");
        assert_eq!((queue.len(), queue.pop()), (0, None));
    }
}
