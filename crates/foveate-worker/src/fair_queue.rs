//! A queue for threads that is fair by site: many images, or images that take long, delay those of other sites little.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::lock;

/// A site whose images take a thread longer than this is heavy. Ordinary photos take a tenth of it.
const HEAVY: Duration = Duration::from_millis(300);

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
    /// The time that its items took, and that those under way are expected to take.
    spent: Duration,
    /// The time that its last item took.
    last: Duration,
    waiting: VecDeque<T>,
    /// The beginning of each item under way.
    active: Vec<Instant>,
}

/// A thread's work on an item of a site.
pub(crate) struct FairTurn {
    site: String,
    began: Instant,
    expected: Duration,
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
        let new = SiteLine { spent: state.now, last: Duration::ZERO, waiting: VecDeque::new(), active: Vec::new() };
        state.sites.entry(site.to_owned()).or_insert(new).waiting.push_back(item);
        state.waiting += 1;
        drop(state);
        self.changed.notify_one();
    }

    /// Waits for the next item, whose turn is returned to [`Self::done`]; `None` once the queue is closed.
    pub(crate) fn pop(&self) -> Option<(T, FairTurn)> {
        let state = lock(&self.state);
        let waited = self.changed.wait_while(state, |state| state.waiting == 0 && !state.is_closed);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let sites = state.sites.iter_mut().filter(|(_, line)| !line.waiting.is_empty());
        let (site, line) = sites.min_by_key(|(_, line)| line.spent)?;
        let item = line.waiting.pop_front()?;
        let turn = FairTurn { site: site.clone(), began: Instant::now(), expected: line.last };
        let spent = line.spent;
        line.active.push(turn.began);
        line.spent += turn.expected;
        state.now = state.now.max(spent);
        state.waiting -= 1;
        Some((item, turn))
    }

    /// Ends a turn that took `time`.
    pub(crate) fn done(&self, FairTurn { site, began, expected }: FairTurn, time: Duration) {
        let mut state = lock(&self.state);
        let Some(line) = state.sites.get_mut(&site) else { return };
        line.spent = (line.spent + time).saturating_sub(expected);
        line.last = time;
        if let Some(place) = line.active.iter().position(|begin| *begin == began) {
            line.active.swap_remove(place);
        }
        if line.active.is_empty() && line.waiting.is_empty() {
            state.sites.remove(&site);
        }
    }

    /// The number of waiting items.
    pub(crate) fn len(&self) -> usize {
        lock(&self.state).waiting
    }

    /// The number of waiting items of heavy sites.
    pub(crate) fn stalled(&self) -> usize {
        let state = lock(&self.state);
        state.sites.values().filter(|line| line.is_heavy()).map(|line| line.waiting.len()).sum()
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

impl<T> SiteLine<T> {
    fn is_heavy(&self) -> bool {
        self.last > HEAVY || self.active.iter().any(|begin| begin.elapsed() > HEAVY)
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
            let (site, turn) = queue.pop().unwrap();
            queue.done(turn, if site == "heavy" { SECOND } else { SECOND / 10 });
            order.push(site);
        }
        assert_eq!(order[2..], ["light", "light", "heavy", "heavy"], "{order:?}");
    }

    #[test]
    fn a_site_gains_nothing_by_waiting_and_heavy_ones_stall() {
        let queue = FairQueue::new();
        (0..4).for_each(|_| queue.push("old", "old"));
        let first = queue.pop().unwrap().1;
        assert_eq!(queue.stalled(), 0);
        queue.done(first, 10 * SECOND);
        assert_eq!((queue.stalled(), queue.len()), (3, 3), "it is heavy");
        let second = queue.pop().unwrap().1;
        (0..3).for_each(|_| queue.push("new", "new"));
        let (item, turn) = queue.pop().unwrap();
        assert_eq!(item, "new");
        queue.done(turn, 5 * SECOND);
        assert_eq!(queue.pop().unwrap().0, "new", "the old one is expected to take ten seconds more");
        queue.done(second, Duration::ZERO);
        assert_eq!(queue.pop().unwrap().0, "old", "the new one began where the other was");
        queue.close();
        queue.push("old", "old");
        assert!(queue.len() == 0 && queue.pop().is_none());
    }
}
