use std::io::{self, Read, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::SearchError;

/// A search, and who watches it.
pub struct Search<'a> {
    /// Threads that compute.
    pub threads: usize,
    /// Called at times with the share of the pairs that is done, in [0, 1].
    pub progress: &'a (dyn Fn(f64) + Sync),
    /// Asked at times whether to stop.
    pub is_cancelled: &'a (dyn Fn() -> bool + Sync),
    /// Keeps the state, if there is one. [`neighbors`](Self::neighbors), [`nearest`](Self::nearest) with more than
    /// 256 queries, [`pairs`](Self::pairs), [`pairs_with`](Self::pairs_with) and the neighbours of
    /// [`evaluate`](Self::evaluate) have one. It is saved at times and when the search is cancelled.
    pub state: Option<&'a dyn SearchState>,
    /// Time between saved states.
    pub save_every: Duration,
    /// Most pairs that are kept, 16 bytes each.
    pub most_pairs: usize,
}

impl Default for Search<'_> {
    /// On all cores, without a state.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, Into::into);
        let save_every = Duration::from_secs(60);
        Self { threads, progress: &|_| (), is_cancelled: &|| false, state: None, save_every, most_pairs: usize::MAX }
    }
}

/// A block of one side and a block of the other.
#[derive(Clone, Copy)]
pub(crate) struct BlockPair {
    pub(crate) a: usize,
    pub(crate) b: usize,
}

/// The pairs of blocks of a search, numbered: each block of one side with the one that it begins with, then each with
/// the next one, and so on. What is near comes first.
pub(crate) struct BlockPairs {
    /// Of each block of one side, the block of the other that it begins with.
    pub(crate) starts: Vec<u32>,
    /// Blocks of the other side.
    pub(crate) blocks: usize,
    /// Number of pairs.
    pub(crate) count: usize,
}

impl BlockPairs {
    /// All pairs of a side's blocks, each once.
    pub(crate) fn symmetric(blocks: usize) -> Self {
        Self { starts: (0..blocks as u32).collect(), blocks, count: blocks * (blocks + 1) / 2 }
    }

    pub(crate) fn at(&self, number: usize) -> BlockPair {
        let a = number % self.starts.len();
        BlockPair { a, b: (self.starts[a] as usize + number / self.starts.len()) % self.blocks }
    }
}

/// Keeps the state of a search, so that the search continues if it is interrupted and repeated. The result does not
/// depend on the state.
///
/// A search goes on if a save fails; the implementation reports the error. Write a file under another name and rename
/// it, so that an interrupted save leaves the former state.
pub trait SearchState: Sync {
    /// Opens the state that was saved last, if there is one.
    fn load(&self) -> Option<Box<dyn Read + '_>>;

    /// Saves a state, which `write` writes in small pieces. The size is that of what was found: 12 bytes for each
    /// neighbour, or 16 for each pair.
    fn save(&self, write: &dyn Fn(&mut dyn Write) -> io::Result<()>);

    /// Called after a load, with the share of the pairs that need not be compared again; `None` if the state is
    /// incomplete or of another search, of other vectors or of another version, and is ignored.
    fn resumed(&self, share: Option<f64>) {
        let _ = share;
    }
}

/// The progress of the threads.
pub(crate) struct EachDone<M> {
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
    ) -> EachDone<M> {
        let next = AtomicUsize::new(numbers.start);
        let is_cancelled = AtomicBool::new(false);
        // Threads share it, which call it once.
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
        EachDone { count, is_cancelled: is_cancelled.into_inner(), memories }
    }
}

/// Returns the result of a thread, or continues its panic.
pub(crate) fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
