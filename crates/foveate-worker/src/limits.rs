//! Budgets that bound memory: requests, and bytes of downloaded files.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::lock;

/// A limited amount of something, such as requests or bytes.
#[derive(Clone)]
pub(crate) struct Budget(Arc<Inner>);

struct Inner {
    limit: u64,
    taken: Mutex<u64>,
    freed: Condvar,
}

/// A share of a budget; dropping it gives it back.
pub(crate) struct Share {
    budget: Budget,
    amount: u64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self(Arc::new(Inner { limit, taken: Mutex::new(0), freed: Condvar::new() }))
    }

    pub(crate) fn limit(&self) -> u64 {
        self.0.limit
    }

    pub(crate) fn taken(&self) -> u64 {
        *self.lock()
    }

    /// Takes `amount` if it is left.
    pub(crate) fn try_take(&self, amount: u64) -> Option<Share> {
        let mut taken = self.lock();
        self.fits(*taken, amount).then(|| self.share(&mut taken, amount))
    }

    /// Takes `amount`, and waits until it is left. An amount above the limit waits until nothing else is taken.
    pub(crate) fn take(&self, amount: u64) -> Share {
        let mut taken = self.lock();
        while !self.fits(*taken, amount) {
            taken = self.0.freed.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        self.share(&mut taken, amount)
    }

    fn fits(&self, taken: u64, amount: u64) -> bool {
        taken == 0 || taken.saturating_add(amount) <= self.0.limit
    }

    fn share(&self, taken: &mut u64, amount: u64) -> Share {
        *taken = taken.saturating_add(amount);
        Share { budget: self.clone(), amount }
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        lock(&self.0.taken)
    }
}

impl Share {
    /// Gives back all but `amount`.
    pub(crate) fn shrink(&mut self, amount: u64) {
        let surplus = self.amount.saturating_sub(amount);
        self.give_back(surplus);
        self.amount -= surplus;
    }

    fn give_back(&self, amount: u64) {
        let mut taken = self.budget.lock();
        *taken = taken.saturating_sub(amount);
        drop(taken);
        self.budget.0.freed.notify_all();
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_kept_and_an_amount_above_it_passes_alone() {
        let budget = Budget::new(10);
        let mut six = budget.take(6);
        assert!(budget.try_take(5).is_none());
        six.shrink(5);
        let five = budget.try_take(5).unwrap();
        assert_eq!(budget.taken(), 10);
        std::thread::scope(|scope| {
            let huge = scope.spawn(|| budget.take(1_000).amount);
            std::thread::sleep(std::time::Duration::from_millis(20));
            drop(six);
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!huge.is_finished());
            drop(five);
            assert_eq!(huge.join().unwrap(), 1_000);
        });
        assert_eq!(budget.taken(), 0);
    }
}
