//! Budgets that bound memory: requests, and bytes of downloaded files.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::lock;

/// A limited amount of something, such as requests or bytes.
#[derive(Clone)]
pub(crate) struct Budget(Arc<SharedBudget>);

struct SharedBudget {
    limit: u64,
    state: Mutex<BudgetUse>,
    freed: Condvar,
}

#[derive(Default)]
struct BudgetUse {
    taken: u64,
    /// Numbers of the shares that may grow.
    growing: BTreeSet<u64>,
    number: u64,
}

/// A share of a budget; dropping it gives it back.
pub(crate) struct BudgetShare {
    budget: Budget,
    amount: u64,
    /// Its number while it may grow.
    growing: Option<u64>,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self(Arc::new(SharedBudget { limit, state: Mutex::default(), freed: Condvar::new() }))
    }

    pub(crate) fn limit(&self) -> u64 {
        self.0.limit
    }

    pub(crate) fn taken(&self) -> u64 {
        self.lock().taken
    }

    /// Takes `amount` if it is left.
    pub(crate) fn try_take(&self, amount: u64) -> Option<BudgetShare> {
        let mut state = self.lock();
        self.fits(&state, amount).then(|| {
            state.taken = state.taken.saturating_add(amount);
            BudgetShare { budget: self.clone(), amount, growing: None }
        })
    }

    /// An empty share that may grow.
    pub(crate) fn growing(&self) -> BudgetShare {
        let mut state = self.lock();
        state.number += 1;
        let number = state.number;
        state.growing.insert(number);
        BudgetShare { budget: self.clone(), amount: 0, growing: Some(number) }
    }

    fn fits(&self, state: &BudgetUse, amount: u64) -> bool {
        state.taken == 0 || state.taken.saturating_add(amount) <= self.0.limit
    }

    fn lock(&self) -> MutexGuard<'_, BudgetUse> {
        lock(&self.0.state)
    }
}

impl BudgetShare {
    /// Grows to `amount`. Waits at most `patience` until it is left; returns false if it is not. The oldest share that
    /// may grow does not wait: otherwise shares that have half of what they need would wait for each other.
    pub(crate) fn grow(&mut self, amount: u64, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let more = amount.saturating_sub(self.amount);
        let budget = self.budget.clone();
        let mut state = budget.lock();
        while !budget.fits(&state, more) && state.growing.first() != self.growing.as_ref() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = budget.0.freed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.taken = state.taken.saturating_add(more);
        self.amount += more;
        true
    }

    /// Gives back all but `amount`, and does not grow any more.
    pub(crate) fn settle(&mut self, amount: u64) {
        let surplus = self.amount.saturating_sub(amount);
        self.give_back(surplus);
        self.amount -= surplus;
    }

    fn give_back(&mut self, amount: u64) {
        let mut state = self.budget.lock();
        state.taken = state.taken.saturating_sub(amount);
        if let Some(number) = self.growing.take() {
            state.growing.remove(&number);
        }
        drop(state);
        self.budget.0.freed.notify_all();
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.give_back(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_budget_is_kept_and_an_amount_above_it_passes_alone() {
        let budget = Budget::new(10);
        let six = budget.try_take(6).unwrap();
        assert!(budget.try_take(5).is_none());
        drop(six);
        let huge = budget.try_take(1_000).unwrap();
        assert!(budget.try_take(1).is_none() && huge.amount == 1_000);
        drop(huge);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn shares_grow_as_there_is_room_and_the_oldest_always() {
        let budget = Budget::new(10);
        let (mut old, mut young) = (budget.growing(), budget.growing());
        assert!(old.grow(4, LONG) && young.grow(6, LONG));
        assert!(!young.grow(12, Duration::from_millis(10)), "there is no room");
        assert!(old.grow(8, LONG), "both would wait for ever");
        assert_eq!(budget.taken(), 14);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| young.grow(12, LONG));
            old.settle(3);
            assert!(waits.join().unwrap(), "it is the oldest that grows");
        });
        assert_eq!(budget.taken(), 15);
        drop((old, young));
        assert_eq!((budget.taken(), budget.lock().growing.len()), (0, 0));
    }
}
