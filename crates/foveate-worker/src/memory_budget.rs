//! The memory of downloaded files that are not decoded yet, fair by site.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use foveate_net::DownloadRoom;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::lock;

/// The part of the budget that one site may have, beyond which a file waits.
const SITE_PART: u64 = 4;
/// Longest wait of a download for memory. Its message then waits in its queue.
const PATIENCE: Duration = Duration::from_secs(10);

/// A limited number of bytes, of which a site has at most a quarter.
#[derive(Clone)]
pub(crate) struct MemoryBudget(Arc<SharedMemory>);

struct SharedMemory {
    limit: u64,
    state: Mutex<MemoryUse>,
    freed: Notify,
}

#[derive(Default)]
struct MemoryUse {
    taken: u64,
    sites: HashMap<String, u64>,
    /// Numbers of the shares that may grow.
    growing: BTreeSet<u64>,
    number: u64,
}

/// A site's share of the budget; dropping it gives it back.
pub(crate) struct MemoryShare {
    budget: MemoryBudget,
    site: String,
    bytes: u64,
    /// Its number while it may grow.
    growing: Option<u64>,
    /// True if it could not grow.
    pub(crate) is_refused: bool,
}

impl MemoryBudget {
    pub(crate) fn new(limit: u64) -> Self {
        Self(Arc::new(SharedMemory { limit, state: Mutex::default(), freed: Notify::new() }))
    }

    /// Bytes that are taken.
    pub(crate) fn taken(&self) -> u64 {
        self.lock().taken
    }

    /// An empty share that may grow.
    pub(crate) fn share(&self, site: String) -> MemoryShare {
        let mut state = self.lock();
        state.number += 1;
        let number = state.number;
        state.growing.insert(number);
        MemoryShare { budget: self.clone(), site, bytes: 0, growing: Some(number), is_refused: false }
    }

    fn lock(&self) -> MutexGuard<'_, MemoryUse> {
        lock(&self.0.state)
    }
}

impl MemoryShare {
    /// Gives back all but `bytes`, and does not grow any more.
    pub(crate) fn settle(&mut self, bytes: u64) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.give_back(surplus);
        self.bytes -= surplus;
    }

    /// Grows or shrinks to `bytes`. Returns false if there is no room for them now.
    pub(crate) fn resize(&mut self, bytes: u64) -> bool {
        let fits = self.take(bytes.saturating_sub(self.bytes));
        self.settle(bytes);
        fits
    }

    /// Takes `more` bytes if they fit. The oldest share that may grow takes them in any case: otherwise shares that
    /// have half of what they need would wait for each other.
    fn take(&mut self, more: u64) -> bool {
        let limit = self.budget.0.limit;
        let mut state = self.budget.lock();
        let of_site = state.sites.get(&self.site).copied().unwrap_or_default();
        let fits = state.taken == 0 || state.taken.saturating_add(more) <= limit;
        let fits_site = of_site == 0 || of_site.saturating_add(more) <= limit / SITE_PART;
        if !(fits && fits_site) && state.growing.first() != self.growing.as_ref() {
            return false;
        }
        state.taken = state.taken.saturating_add(more);
        state.sites.insert(self.site.clone(), of_site.saturating_add(more));
        drop(state);
        self.bytes += more;
        true
    }

    fn give_back(&mut self, bytes: u64) {
        let mut state = self.budget.lock();
        state.taken = state.taken.saturating_sub(bytes);
        let left = state.sites.get(&self.site).map_or(0, |of_site| of_site.saturating_sub(bytes));
        match left {
            0 => state.sites.remove(&self.site),
            left => state.sites.insert(self.site.clone(), left),
        };
        if let Some(number) = self.growing.take() {
            state.growing.remove(&number);
        }
        drop(state);
        self.budget.0.freed.notify_waiters();
    }
}

impl DownloadRoom for MemoryShare {
    async fn grow(&mut self, bytes: u64) -> bool {
        let until = Instant::now() + PATIENCE;
        let more = bytes.saturating_sub(self.bytes);
        let budget = self.budget.clone();
        loop {
            let mut freed = std::pin::pin!(budget.0.freed.notified());
            freed.as_mut().enable();
            if self.take(more) {
                return true;
            }
            if timeout_at(until, freed).await.is_err() {
                self.is_refused = true;
                return false;
            }
        }
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    fn share(budget: &MemoryBudget, site: &str) -> MemoryShare {
        budget.share(site.to_owned())
    }

    #[tokio::test]
    async fn a_budget_is_kept_and_the_oldest_share_grows_beyond_it() {
        let budget = MemoryBudget::new(40);
        let mut old = share(&budget, "a");
        let mut others: Vec<_> = (0..4).map(|n| share(&budget, &n.to_string())).collect();
        assert!(old.grow(8).await);
        for other in &mut others[..3] {
            assert!(other.grow(10).await);
        }
        assert!(timeout(SOON, others[3].grow(10)).await.is_err(), "there is no room");
        assert!(old.grow(20).await, "all would wait for ever");
        old.settle(2);
        assert!(timeout(SOON, others[3].grow(10)).await.is_err());
        drop(others.remove(0));
        let last = others.last_mut().unwrap();
        assert!(last.grow(8).await && budget.taken() == 30);
        drop((old, others));
        let state = budget.lock();
        assert_eq!((state.taken, state.sites.len(), state.growing.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn no_site_has_more_than_a_quarter_but_for_one_file() {
        let budget = MemoryBudget::new(40);
        let _oldest = share(&budget, "x");
        let (mut one, mut other, mut honest) = (share(&budget, "a"), share(&budget, "a"), share(&budget, "b"));
        assert!(one.grow(30).await, "a file that is larger than a quarter");
        assert!(timeout(SOON, other.grow(1)).await.is_err());
        assert!(honest.grow(10).await);
        let freed = async {
            tokio::task::yield_now().await;
            drop(one);
        };
        let grown = async { other.grow(10).await };
        assert!(tokio::join!(grown, freed).0, "whoever waits is told");
    }
}
