//! A sink that keeps vectors in memory instead of a file, and a source that yields a sample of another source.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use foveate_core::lock;
use foveate_sink::{Existing, Failure, Published, Rows, RunManifest, SinkError, VectorSink, Watermark};
use foveate_source::{Content, Delivery, Extent, Fetch, Item, Source, SourceError};

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
        std::mem::take(&mut *lock(&self.0))
    }

    fn with<T>(&self, change: impl FnOnce(&mut Collected) -> T) -> T {
        change(&mut lock(&self.0))
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
        self.with(|all| {
            for ((&index, id), vector) in rows.index.iter().zip(rows.id).zip(vectors) {
                all.rows.push(CollectedRow { index, id: id.clone(), vector: vector.to_vec() });
            }
        });
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
        let (rows, failures) = self.with(|all| (all.rows.len() as u64, all.failures.len() as u64));
        Ok(Published { rows, failures, ..Published::default() })
    }
}

/// Items of another source, counted from 0 in that source's order: drawn uniformly at random, or the first ones of a
/// source that reads its items on the way (containers, object stores). A clone yields the same items without listing
/// the other source again.
#[derive(Clone)]
pub struct Sample {
    from: Arc<Mutex<Shared>>,
    drawn: Drawn,
    next: u64,
    /// The place of the item before.
    after: u64,
}

/// The other source.
struct Shared {
    source: Box<dyn Source>,
    /// The item that it yields next, counted from its first one.
    next: u64,
}

#[derive(Clone)]
enum Drawn {
    /// These, which a [`Fetch`] reads.
    Items(Arc<[Item]>),
    /// As many of the first ones, read again by each clone.
    First(u64),
}

impl Sample {
    /// Draws `size` items of `from`, or all if there are no more. The same `seed` draws the same items. A source that
    /// reads its items on the way gives its first `size` items.
    ///
    /// # Errors
    /// Fails if the source cannot be read.
    pub fn draw(mut from: Box<dyn Source>, size: u64, seed: u64) -> Result<Self, SourceError> {
        let drawn = match from.extent() {
            Extent { start, end: Some(end) } if !delivers(from.as_mut())? => {
                let mut items = Vec::new();
                for index in choose(start..end, size, seed) {
                    from.seek(index, 0)?;
                    items.extend(from.next_item()?.map(|item| Item { index: items.len() as u64, ..item }));
                }
                Drawn::Items(items.into())
            }
            extent => Drawn::First(extent.count().map_or(size, |count| count.min(size))),
        };
        Ok(Self { from: Arc::new(Mutex::new(Shared { source: from, next: 0 })), drawn, next: 0, after: 0 })
    }

    fn with<T>(&self, ask: impl FnOnce(&dyn Source) -> T) -> T {
        ask(lock(&self.from).source.as_ref())
    }

    /// Reads the next of the first items of the other source, which another clone may have left anywhere.
    fn read(&mut self) -> Result<Option<Delivery>, SourceError> {
        let mut from = lock(&self.from);
        if from.next != self.next {
            let start = from.source.extent().start;
            from.source.seek(start + self.next, self.after)?;
            from.next = self.next;
        }
        let Some(Delivery { item, content }) = from.source.deliver()? else { return Ok(None) };
        from.next += 1;
        self.after = item.place;
        let item = Item { index: self.next, ..item };
        self.next += 1;
        Ok(Some(Delivery { item, content }))
    }
}

impl Source for Sample {
    fn next_item(&mut self) -> Result<Option<Item>, SourceError> {
        Ok(self.deliver()?.map(|delivery| delivery.item))
    }

    fn deliver(&mut self) -> Result<Option<Delivery>, SourceError> {
        match &self.drawn {
            Drawn::First(size) if self.next >= *size => Ok(None),
            Drawn::First(_) => self.read(),
            Drawn::Items(items) => {
                let item = items.get(self.next as usize).cloned();
                self.next += u64::from(item.is_some());
                Ok(item.map(Delivery::unread))
            }
        }
    }

    fn extent(&self) -> Extent {
        match &self.drawn {
            Drawn::Items(items) => (0..items.len() as u64).into(),
            // The source may have fewer.
            Drawn::First(size) => Extent { start: 0, end: self.with(|from| from.extent().end).map(|_| *size) },
        }
    }

    fn seek(&mut self, index: u64, after: u64) -> Result<(), SourceError> {
        self.next = self.extent().end.map_or(index, |end| index.min(end));
        self.after = after;
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

/// Returns true if a source reads its items on the way, as its first one shows.
fn delivers(source: &mut dyn Source) -> Result<bool, SourceError> {
    let first = source.deliver()?;
    source.rewind()?;
    Ok(first.is_some_and(|first| !matches!(first.content, Content::Unread)))
}

/// Draws `size` indexes of `range` in ascending order, each subset equally likely (Floyd's algorithm).
fn choose(range: Range<u64>, size: u64, seed: u64) -> Vec<u64> {
    let total = range.end - range.start;
    if size >= total {
        return range.collect();
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let mut chosen = std::collections::BTreeSet::new();
    for last in total - size..total {
        let candidate = random.u64(..=last);
        chosen.insert(if chosen.contains(&candidate) { last } else { candidate });
    }
    chosen.into_iter().map(|offset| range.start + offset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads its items on the way, and needs the place of the item before to continue.
    struct Delivering {
        count: u64,
        next: u64,
        is_known: bool,
    }

    impl Source for Delivering {
        fn next_item(&mut self) -> Result<Option<Item>, SourceError> {
            Ok(self.deliver()?.map(|delivery| delivery.item))
        }

        fn deliver(&mut self) -> Result<Option<Delivery>, SourceError> {
            if self.next == self.count {
                return Ok(None);
            }
            let (index, id) = (self.next, format!("photo {}", self.next));
            self.next += 1;
            let content = Content::Read(id.clone().into_bytes().into());
            Ok(Some(Delivery { item: Item { index, place: index + 100, id, ..Item::default() }, content }))
        }

        fn extent(&self) -> Extent {
            Extent { start: 0, end: self.is_known.then_some(self.count) }
        }

        fn seek(&mut self, index: u64, after: u64) -> Result<(), SourceError> {
            assert_eq!(after, if index == 0 { 0 } else { index + 99 }, "the place of the item before");
            self.next = index;
            Ok(())
        }

        fn listing_hash(&self) -> String {
            "delivering".to_owned()
        }

        fn open_fetch(&self) -> Result<Box<dyn Fetch>, SourceError> {
            Err(SourceError::Invalid("it reads its items on the way".to_owned()))
        }
    }

    fn sample(count: u64, is_known: bool, size: u64) -> Sample {
        Sample::draw(Box::new(Delivering { count, next: 0, is_known }), size, 1).unwrap()
    }

    fn next(sample: &mut Sample) -> Option<(u64, String)> {
        let Delivery { item, content } = sample.deliver().unwrap()?;
        assert!(matches!(&content, Content::Read(bytes) if *bytes == item.id), "{content:?}");
        Some((item.index, item.id))
    }

    #[test]
    fn the_first_items_of_a_source_that_delivers_are_read_again_by_each_clone() {
        for (count, is_known, size) in [(10, true, 4), (10, false, 4), (3, true, 4), (3, false, 4)] {
            let (mut one, expected) = (sample(count, is_known, size), count.min(size));
            assert_eq!(one.extent(), Extent { start: 0, end: is_known.then_some(expected) });
            let mut other = one.clone();
            for index in 0..expected {
                let item = Some((index, format!("photo {index}")));
                // In turns, so that neither finds the source where it left it.
                assert_eq!((next(&mut one), next(&mut other)), (item.clone(), item));
            }
            assert_eq!((next(&mut one), next(&mut other)), (None, None));
            one.rewind().unwrap();
            assert_eq!(next(&mut one), Some((0, "photo 0".to_owned())));
            one.seek(2, 101).unwrap();
            assert_eq!(next(&mut one), Some((2, "photo 2".to_owned())));
        }
        assert_eq!(next(&mut sample(0, true, 4)), None);
    }

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
