//! Work that is split among the threads of a search.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use crate::{Search, SearchError};

/// The progress of the threads.
pub(crate) struct Done<M> {
    /// All numbers below this one.
    pub(crate) count: usize,
    pub(crate) is_cancelled: bool,
    /// The memory of each thread.
    pub(crate) memories: Vec<M>,
}

impl Search<'_> {
    /// Returns the results of `act` for each number below `count`, in order, computed on all threads.
    pub(crate) fn map<T: Send>(
        &self,
        count: usize,
        progress: Range<f64>,
        act: impl Fn(usize) -> T + Sync,
    ) -> Result<Vec<T>, SearchError> {
        let of_threads = self.each(count, progress, Vec::new, |number, out| out.push((number, act(number))))?;
        let mut all: Vec<_> = of_threads.into_iter().flatten().collect();
        all.sort_unstable_by_key(|&(number, _)| number);
        Ok(all.into_iter().map(|(_, of_number)| of_number).collect())
    }

    /// Calls `act` with each number below `count`, on all threads, and returns what each thread has in memory then.
    pub(crate) fn each<M: Send>(
        &self,
        count: usize,
        progress: Range<f64>,
        new: impl Fn() -> M + Sync,
        act: impl Fn(usize, &mut M) + Sync,
    ) -> Result<Vec<M>, SearchError> {
        let done = self.each_until(0..count, progress, None, new, act);
        if done.is_cancelled { Err(SearchError::Cancelled) } else { Ok(done.memories) }
    }

    /// Calls `act` with each number until some time, at least one.
    pub(crate) fn each_until<M: Send>(
        &self,
        numbers: Range<usize>,
        progress: Range<f64>,
        end: Option<Instant>,
        new: impl Fn() -> M + Sync,
        act: impl Fn(usize, &mut M) + Sync,
    ) -> Done<M> {
        let (next, is_cancelled) = (AtomicUsize::new(numbers.start), AtomicBool::new(false));
        let work = || {
            let mut memory = new();
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= numbers.end {
                    break;
                }
                act(number, &mut memory);
                let share = (number + 1) as f64 / numbers.end as f64;
                (self.progress)(progress.start + (progress.end - progress.start) * share);
                is_cancelled.fetch_or((self.is_cancelled)(), Relaxed);
                if is_cancelled.load(Relaxed) || end.is_some_and(|end| Instant::now() >= end) {
                    break;
                }
            }
            memory
        };
        let memories = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads.max(1)).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(joined).collect()
        });
        // Each thread did what it took.
        let count = next.into_inner().min(numbers.end);
        Done { count, is_cancelled: is_cancelled.into_inner(), memories }
    }
}

/// Returns the result of a thread, or continues its panic.
pub(crate) fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
