//! A sink that keeps vectors in memory instead of a file, and a source that yields a sample of another source.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use foveate_sink::{Existing, Failure, Published, Rows, RunManifest, SinkError, VectorSink, Watermark};
use foveate_source::{Fetch, Item, Source, SourceError};

/// The outcomes of a run whose vectors stay in memory, each list in source order.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    /// Index in the source, id and vector of every item that has a vector.
    pub rows: Vec<CollectedRow>,
    /// The items without a vector.
    pub failures: Vec<Failure>,
}

/// An item and its vector.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectedRow {
    /// Place in the source.
    pub index: u64,
    /// The item's id.
    pub id: String,
    /// Its vector, `[dim]`.
    pub vector: Vec<f32>,
}

/// A sink that keeps everything in memory: for samples, not for whole collections.
#[derive(Clone, Debug, Default)]
pub struct MemorySink(Arc<Mutex<Collected>>);

impl MemorySink {
    /// Returns the rows and failures stored so far and empties the sink. Call it on a clone of the sink after the run.
    pub fn take(&self) -> Collected {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn with<T>(&self, change: impl FnOnce(&mut Collected) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl VectorSink for MemorySink {
    fn begin(&mut self, _: &RunManifest, _: Existing) -> Result<Watermark, SinkError> {
        Ok(Watermark::default())
    }

    fn failures(&mut self) -> Result<u64, SinkError> {
        Ok(self.with(|all| all.failures.len() as u64))
    }

    fn append(&mut self, rows: &Rows<'_>) -> Result<(), SinkError> {
        let dim = rows.vectors.len().checked_div(rows.index.len()).unwrap_or(0);
        let vectors = rows.vectors.chunks_exact(dim.max(1));
        let row = |((&index, id), vector): ((&u64, &String), &[f32])| CollectedRow {
            index,
            id: id.clone(),
            vector: vector.to_vec(),
        };
        self.with(|all| all.rows.extend(rows.index.iter().zip(rows.id).zip(vectors).map(row)));
        Ok(())
    }

    fn fail(&mut self, failures: &[Failure]) -> Result<(), SinkError> {
        self.with(|all| all.failures.extend_from_slice(failures));
        Ok(())
    }

    fn commit(&mut self, _: Watermark) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(&mut self) -> Result<Published, SinkError> {
        let counts = |all: &mut Collected| (all.rows.len() as u64, all.failures.len() as u64);
        let (rows, failures) = self.with(counts);
        Ok(Published { rows, failures, ..Published::default() })
    }
}

/// Items of another source, drawn uniformly at random and counted from 0 in that source's order. A clone yields the
/// same items without listing the other source again.
#[derive(Clone)]
pub struct Sample {
    from: Arc<Mutex<Box<dyn Source>>>,
    items: Arc<[Item]>,
    next: usize,
}

impl Sample {
    /// Draws `size` items of `from`, or all if there are no more. The same `seed` draws the same items.
    ///
    /// # Errors
    /// Fails if the source cannot be read.
    pub fn draw(mut from: Box<dyn Source>, size: u64, seed: u64) -> Result<Self, SourceError> {
        let mut items = Vec::new();
        for index in choose(from.range(), size, seed) {
            from.seek(index)?;
            items.extend(from.next_item()?);
        }
        for (index, item) in (0..).zip(&mut items) {
            item.index = index;
        }
        Ok(Self { from: Arc::new(Mutex::new(from)), items: items.into(), next: 0 })
    }

    fn with<T>(&self, ask: impl FnOnce(&dyn Source) -> T) -> T {
        ask(self.from.lock().unwrap_or_else(PoisonError::into_inner).as_ref())
    }
}

impl Source for Sample {
    fn next_item(&mut self) -> Result<Option<Item>, SourceError> {
        let item = self.items.get(self.next).cloned();
        self.next += usize::from(item.is_some());
        Ok(item)
    }

    fn range(&self) -> Range<u64> {
        0..self.items.len() as u64
    }

    fn seek(&mut self, index: u64) -> Result<(), SourceError> {
        self.next = usize::try_from(index).unwrap_or(usize::MAX).min(self.items.len());
        Ok(())
    }

    /// Returns the hash of the original source's listing.
    fn listing_hash(&self) -> String {
        self.with(|from| from.listing_hash())
    }

    fn open_fetch(&self) -> Result<Box<dyn Fetch>, SourceError> {
        self.with(|from| from.open_fetch())
    }
}

/// Draws `size` indexes of `range` in ascending order, each subset equally likely (Floyd's algorithm).
fn choose(range: Range<u64>, size: u64, seed: u64) -> Vec<u64> {
    let total = range.end - range.start;
    if size >= total {
        return range.collect();
    }
    let mut state = seed;
    let mut chosen = std::collections::BTreeSet::new();
    for last in total - size..total {
        let candidate = split_mix(&mut state) % (last + 1);
        chosen.insert(if chosen.contains(&candidate) { last } else { candidate });
    }
    chosen.into_iter().map(|offset| range.start + offset).collect()
}

/// Steps SplitMix64.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_in_order_without_repeats_and_depend_on_the_seed() {
        let sample = choose(1_000..2_000, 100, 1);
        assert_eq!(sample.len(), 100);
        assert!(sample.is_sorted_by(|a, b| a < b) && sample[0] >= 1_000 && sample[99] < 2_000, "{sample:?}");
        assert_eq!(sample, choose(1_000..2_000, 100, 1));
        assert_ne!(sample, choose(1_000..2_000, 100, 2));
        assert_eq!(choose(5..8, 10, 1), [5, 6, 7]);
    }

    #[test]
    fn every_item_is_as_likely_as_another() {
        let mut counts = [0; 10];
        for seed in 0..10_000 {
            choose(0..10, 3, seed).into_iter().for_each(|index| counts[index as usize] += 1);
        }
        assert!(counts.iter().all(|count| (2_800..3_200).contains(count)), "{counts:?}");
    }
}
