use std::io::{self, Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use xxhash_rust::xxh3::Xxh3;

use crate::bytes::{get, put};
use crate::screen::ThreadScratch;
use crate::search::{BlockPair, BlockPairs, lock};
use crate::side::SearchSide;
use crate::top::Top;
use crate::{Metric, Search, SearchError};

/// The first bytes of a state, with its version.
const MAGIC: &[u8; 8] = b"fvsrch03";
/// Share of the progress after which the first neighbours are known.
pub(crate) const SEEDED: f64 = 0.02;

/// Findings of a search, which are part of its state.
pub(crate) trait SavedFindings: Sized {
    fn write(&self, out: &mut dyn Write) -> io::Result<()>;
    /// Reads what `new`, which has found nothing, is to become.
    fn read(new: Self, input: &mut dyn Read) -> io::Result<Self>;
}

/// A search in parts, between which its state is saved.
pub(crate) struct SearchWork<'a, F> {
    tasks: &'a BlockPairs,
    fingerprint: u64,
    /// Tasks that are done.
    pub(crate) done: usize,
    pub(crate) scored: AtomicU64,
    pub(crate) found: F,
}

impl Search<'_> {
    /// Continues the search of these sides with this `k` or threshold, or begins with `new`.
    pub(crate) fn resume<'t, F: SavedFindings>(
        &self,
        tasks: &'t BlockPairs,
        sides: &[&SearchSide<'_>],
        wanted: u64,
        new: impl Fn() -> F,
    ) -> SearchWork<'t, F> {
        let fingerprint = self.state.map_or(0, |_| fingerprint(sides, wanted));
        let start = SearchWork { tasks, fingerprint, done: 0, scored: AtomicU64::new(0), found: new() };
        let Some((state, mut input)) = self.state.and_then(|state| Some((state, state.load()?))) else { return start };
        let loaded = start.read(&mut input);
        state.resumed(loaded.as_ref().ok().map(|loaded| loaded.done as f64 / tasks.count.max(1) as f64));
        loaded.unwrap_or_else(|_| SearchWork { tasks, fingerprint, done: 0, scored: AtomicU64::new(0), found: new() })
    }

    /// Calls `act` for each task that is left, with memory that a thread uses again.
    pub(crate) fn each_task<F: SavedFindings + Sync>(
        &self,
        work: &SearchWork<'_, F>,
        act: impl Fn(BlockPair, &mut ThreadScratch, &mut Vec<(u32, u32)>) + Sync,
    ) -> Result<(), SearchError> {
        let tasks = work.tasks;
        let mut first = work.done;
        while first < tasks.count {
            let end = self.state.and_then(|_| Instant::now().checked_add(self.save_every));
            let new = <(ThreadScratch, Vec<_>)>::default;
            let done = self.each_until(first..tasks.count, SEEDED..1.0, end, new, |number, (scratch, found)| {
                found.clear();
                act(tasks.at(number), scratch, found);
            });
            first = done.count;
            if let Some(state) = self.state.filter(|_| done.is_cancelled || first < tasks.count) {
                state.save(&|out| work.write(first, out));
            }
            if done.is_cancelled {
                return Err(SearchError::Cancelled);
            }
        }
        Ok(())
    }
}

/// A stream, and the hash of what went through it.
struct Hashed<'a, S: ?Sized> {
    stream: &'a mut S,
    hash: Xxh3,
}

impl<S: Write + ?Sized> Write for Hashed<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.stream.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl<S: Read + ?Sized> Read for Hashed<'_, S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(bytes)?;
        self.hash.update(&bytes[..read]);
        Ok(read)
    }
}

impl<F: SavedFindings> SearchWork<'_, F> {
    fn write(&self, done: usize, out: &mut dyn Write) -> io::Result<()> {
        let mut out = Hashed { stream: out, hash: Xxh3::new() };
        out.write_all(MAGIC)?;
        let numbers = [self.fingerprint, done as u64, self.scored.load(Relaxed)];
        put(&mut out, &numbers, u64::to_le_bytes)?;
        self.found.write(&mut out)?;
        let hash = out.hash.digest();
        out.stream.write_all(&hash.to_le_bytes())
    }

    fn read(self, input: &mut dyn Read) -> io::Result<Self> {
        let input = &mut Hashed { stream: input, hash: Xxh3::new() };
        let mut magic = [0; 8];
        let mut numbers = [0; 3];
        input.read_exact(&mut magic)?;
        get(input, &mut numbers, u64::from_le_bytes)?;
        let [fingerprint, done, scored] = numbers;
        if &magic != MAGIC || fingerprint != self.fingerprint || done > self.tasks.count as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let found = F::read(self.found, input)?;
        let hash = input.hash.digest();
        let mut saved = [0; 8];
        input.stream.read_exact(&mut saved)?;
        // Numbers that are damaged would be wrong neighbours.
        if hash.to_le_bytes() != saved {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self { done: done as usize, scored: AtomicU64::new(scored), found, ..self })
    }
}

impl SavedFindings for Vec<Mutex<Top>> {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.iter().try_for_each(|top| lock(top).write(out))
    }

    fn read(new: Self, input: &mut dyn Read) -> io::Result<Self> {
        new.iter().try_for_each(|top| lock(top).read(input))?;
        Ok(new)
    }
}

/// A hash of all that decides what is found, and of the order in which it is.
fn fingerprint(sides: &[&SearchSide<'_>], wanted: u64) -> u64 {
    fn mix(hash: u64, number: u64) -> u64 {
        (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
    }
    let mut hash = mix(1, wanted);
    for SearchSide { vectors, rows, .. } in sides {
        hash = mix(mix(hash, vectors.dim() as u64), u64::from(vectors.metric() == Metric::Cosine));
        for &row in rows {
            hash = vectors.row(row).iter().fold(mix(hash, row.into()), |hash, x| mix(hash, x.to_bits().into()));
        }
    }
    hash
}
