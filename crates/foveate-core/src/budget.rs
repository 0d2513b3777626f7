use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::sync::lock;

/// Memory for decoded images that all threads of an engine share: large images take turns, in order of arrival.
///
/// Images of at most [`PixelBudget::SMALL_BYTES`] do not ask: `n` threads take at most the budget and `n` times that.
/// An image that needs more than the whole budget passes alone. A thread that waits holds no share, and one that holds
/// a share waits for no other thread, so none waits forever.
#[derive(Clone, Debug)]
pub struct PixelBudget(Arc<BudgetLine>);

#[derive(Debug)]
struct BudgetLine {
    bytes: u64,
    turns: Mutex<BudgetTurns>,
    /// Notified when a share is taken or returned.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct BudgetTurns {
    taken: u64,
    arrived: u64,
    served: u64,
    /// Buffers of earlier images, which fit into the budget with all shares. Fresh memory would cost a turned photo of
    /// 12 megapixels a fifth of its time.
    spares: Vec<Vec<u8>>,
}

impl BudgetTurns {
    fn spare_bytes(&self) -> u64 {
        self.spares.iter().map(|spare| spare.len() as u64).sum()
    }
}

/// A part of a budget, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct PixelShare {
    line: Arc<BudgetLine>,
    taken: u64,
    /// Bytes that the image asked for, which may be more than the budget.
    pub(crate) bytes: u64,
}

impl PixelBudget {
    /// 1 GB.
    pub const DEFAULT_BYTES: u64 = 1_000_000_000;

    /// Images that take at most this much, pixels and decoder together, do not ask.
    pub const SMALL_BYTES: u64 = 32 << 20;

    /// A budget of this many bytes. With too few for any large image, these pass one by one.
    pub fn new(bytes: u64) -> Self {
        Self(Arc::new(BudgetLine { bytes: bytes.max(1), turns: Mutex::default(), changed: Condvar::new() }))
    }

    /// Waits for this image's turn. The caller must hold no other share.
    pub(crate) fn take(&self, bytes: u64) -> PixelShare {
        let line = &self.0;
        let taken = bytes.min(line.bytes);
        let mut turns = lock(&line.turns);
        let place = turns.arrived;
        turns.arrived += 1;
        while turns.served != place || turns.taken + taken > line.bytes {
            turns = line.changed.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
        turns.served += 1;
        turns.taken += taken;
        while turns.taken + turns.spare_bytes() > line.bytes {
            turns.spares.pop();
        }
        // The next in line may fit, too.
        line.changed.notify_all();
        PixelShare { line: Arc::clone(line), taken, bytes }
    }

    /// Keeps an image's buffer for the next one, or frees it if it is unusually large or room is scarce.
    pub(crate) fn keep(&self, buffer: Vec<u8>) {
        const MOST_BYTES: usize = 64 << 20;
        let mut turns = lock(&self.0.turns);
        let all = turns.taken + turns.spare_bytes() + buffer.len() as u64;
        if buffer.len() <= MOST_BYTES && all <= self.0.bytes {
            turns.spares.push(buffer);
        }
    }

    /// A kept buffer of `len` bytes, for an image that holds a share; empty if there is none. One that is too small is
    /// freed, so that no more are kept than were in use at once.
    pub(crate) fn spare(&self, len: usize) -> Vec<u8> {
        let mut turns = lock(&self.0.turns);
        let fitting = turns.spares.iter().position(|spare| spare.len() >= len);
        let Some(at) = fitting else {
            turns.spares.pop();
            return Vec::new();
        };
        let mut buffer = turns.spares.swap_remove(at);
        drop(turns);
        buffer.truncate(len);
        buffer.shrink_to_fit();
        buffer
    }
}

impl Default for PixelBudget {
    fn default() -> Self {
        Self::new(Self::DEFAULT_BYTES)
    }
}

impl Drop for PixelShare {
    fn drop(&mut self) {
        lock(&self.line.turns).taken -= self.taken;
        self.line.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    impl PixelBudget {
        fn taken(&self) -> u64 {
            lock(&self.0.turns).taken
        }

        /// Waits until this many have asked.
        fn wait_for(&self, arrived: u64) {
            while lock(&self.0.turns).arrived < arrived {
                thread::yield_now();
            }
        }
    }

    /// The third would fit at once, but the second came first.
    #[test]
    fn shares_are_taken_in_order_of_arrival() {
        let budget = PixelBudget::new(10);
        let first = budget.take(8);
        let (order, served) = channel();
        thread::scope(|scope| {
            for (arrived, bytes) in [(2, 10), (3, 1)] {
                let order = order.clone();
                let budget = &budget;
                scope.spawn(move || {
                    let share = budget.take(bytes);
                    order.send(bytes).unwrap();
                    drop(share);
                });
                budget.wait_for(arrived);
            }
            assert!(served.try_recv().is_err(), "they wait for the first");
            drop(first);
        });
        drop(order);
        assert_eq!(served.iter().collect::<Vec<_>>(), [10, 1]);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn more_than_the_budget_passes_alone() {
        let budget = PixelBudget::new(10);
        let alone = budget.take(1_000);
        assert_eq!(budget.taken(), 10);
        thread::scope(|scope| {
            let next = scope.spawn(|| budget.take(1));
            budget.wait_for(2);
            assert!(!next.is_finished());
            drop(alone);
            assert_eq!(next.join().unwrap().bytes, 1);
        });
        // Kept buffers make way.
        budget.keep(vec![0; 6]);
        budget.keep(vec![0; 5]);
        assert_eq!(lock(&budget.0.turns).spare_bytes(), 6, "both have no room");
        drop(budget.take(5));
        assert_eq!(lock(&budget.0.turns).spare_bytes(), 0);
    }
}
