//! The same content computed once: contents that the run has met, and vectors that other runs left in a cache.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use foveate_core::{Size, lock};
use foveate_encode::Encoder;
use foveate_sink::{ContentId, Failure};

/// An image's size and vector, which its content alone decides.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownVector {
    /// The image's size after orientation.
    pub size: Size,
    /// Its vector, `[dim]`.
    pub vector: Vec<f32>,
}

/// Vectors that outlive a run, by the identity of an image's bytes. All of them come from the same settings.
pub trait Recall: fmt::Debug + Send + Sync {
    /// Returns what is known of a content. An error is a miss.
    fn recall(&self, content: ContentId) -> Option<KnownVector>;

    /// Takes what was computed. Returns at once; it may be stored later, or not at all.
    fn remember(&self, content: ContentId, known: KnownVector);
}

/// Rows whose vectors were not computed for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recalled {
    /// Rows with the content of an earlier item of the run.
    pub run: u64,
    /// Rows whose vector an output or an interrupted update had of another input with this content.
    pub output: u64,
    /// Rows whose vector came from the cache.
    pub cache: u64,
}

/// The outcome that items of the same content share. Empty until the first of them has one.
pub(crate) type Shared = Arc<OnceLock<Result<KnownVector, Failure>>>;

/// The origin of a row's vector.
pub(crate) enum VectorOrigin {
    /// It is computed; the first item of a content passes its outcome on.
    Computed(Option<Lead>),
    /// An item before it in the source has the same content.
    Run(Shared),
    Output(Shared),
    Cache(Shared),
}

impl VectorOrigin {
    pub(crate) fn is_computed(&self) -> bool {
        matches!(self, Self::Computed(_))
    }
}

/// The first item of a content.
pub(crate) struct Lead {
    pub(crate) content: ContentId,
    pub(crate) shared: Shared,
}

impl Lead {
    /// Passes a failure on to the items that follow.
    pub(crate) fn fail(&self, failure: &Failure) {
        let _ = self.shared.set(Err(failure.clone())); // the only outcome of its item
    }
}

/// The contents that items can share.
pub(crate) struct Contents {
    recent: Mutex<Recent>,
    dim: usize,
    earlier: Option<Arc<dyn Recall>>,
    cache: Option<Arc<dyn Recall>>,
}

impl Contents {
    /// `None` if every item is to be computed: contents are shared only if a vector's bits do not depend on the other
    /// images of its batch.
    pub(crate) fn new(
        recent_bytes: u64,
        earlier: Option<Arc<dyn Recall>>,
        cache: Option<Arc<dyn Recall>>,
        encoders: &[Box<dyn Encoder>],
    ) -> Option<Self> {
        let dim = encoders.first()?.spec().dim;
        let is_wanted = recent_bytes > 0 || earlier.is_some() || cache.is_some();
        let is_invariant = encoders.iter().all(|encoder| encoder.spec().batch_invariant);
        (is_wanted && is_invariant).then(|| Self {
            recent: Mutex::new(Recent::new(recent_bytes / (4 * dim + Recent::OVERHEAD) as u64)),
            dim,
            earlier,
            cache,
        })
    }

    /// Returns where the vector of item `index` with this content comes from.
    pub(crate) fn origin(&self, index: u64, content: ContentId) -> VectorOrigin {
        let (shared, is_first) = lock(&self.recent).meet(content, index);
        if !is_first {
            return VectorOrigin::Run(shared);
        }
        if self.settle_from(&self.earlier, content, &shared) {
            VectorOrigin::Output(shared)
        } else if self.settle_from(&self.cache, content, &shared) {
            VectorOrigin::Cache(shared)
        } else {
            VectorOrigin::Computed(Some(Lead { content, shared }))
        }
    }

    /// Returns false if `recall` knows nothing of the content.
    fn settle_from(&self, recall: &Option<Arc<dyn Recall>>, content: ContentId, shared: &Shared) -> bool {
        let known = recall.as_ref().and_then(|recall| recall.recall(content));
        // No other item has it yet, so that it is empty.
        known.filter(|known| known.vector.len() == self.dim).is_some_and(|known| shared.set(Ok(known)).is_ok())
    }

    /// Passes a computed vector on to the items that follow, and to the cache.
    pub(crate) fn settle(&self, lead: &Lead, known: KnownVector) {
        if let Some(cache) = &self.cache {
            cache.remember(lead.content, known.clone());
        }
        let _ = lead.shared.set(Ok(known)); // the only outcome of its item
    }
}

/// The contents met last, in two generations: a full younger one replaces the older.
struct Recent {
    young: HashMap<ContentId, Met>,
    old: HashMap<ContentId, Met>,
    /// Most contents of a generation.
    most: usize,
}

struct Met {
    /// The item that met it first.
    index: u64,
    shared: Shared,
}

impl Recent {
    /// Bytes of an entry without its vector: the two allocations, a failure's reason, and free slots of the map.
    const OVERHEAD: usize = 352;

    fn new(most: u64) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), most: usize::try_from(most / 2).unwrap_or(usize::MAX) }
    }

    /// Returns the outcome that item `index` shares, and true if it is the item's own to find. The writer settles items
    /// in order, so one may wait only for an item before it.
    fn meet(&mut self, content: ContentId, index: u64) -> (Shared, bool) {
        let met = self.young.remove(&content).or_else(|| self.old.remove(&content));
        let is_first = met.as_ref().is_none_or(|met| met.index > index && met.shared.get().is_none());
        let met = met.unwrap_or_else(|| Met { index, shared: Shared::default() });
        let shared = if is_first && met.index != index { Shared::default() } else { Arc::clone(&met.shared) };
        if self.young.len() >= self.most {
            self.old = std::mem::take(&mut self.young);
        }
        if self.most > 0 {
            self.young.insert(content, met);
        }
        (shared, is_first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(number: u64) -> ContentId {
        ContentId::of(&number.to_le_bytes())
    }

    #[test]
    fn an_item_waits_only_for_one_before_it() {
        let mut recent = Recent::new(10);
        let (first, is_first) = recent.meet(content(7), 5);
        assert!(is_first);
        let (other, is_first) = recent.meet(content(7), 3);
        assert!(is_first && !Arc::ptr_eq(&first, &other), "item 5 comes after it");
        let (shared, is_first) = recent.meet(content(7), 6);
        assert!(!is_first && Arc::ptr_eq(&first, &shared));
        first.set(Ok(KnownVector { size: Size::square(1), vector: vec![1.0] })).unwrap();
        assert!(!recent.meet(content(7), 4).1, "its outcome is there");
    }

    #[test]
    fn the_contents_used_last_are_kept_within_the_bound() {
        let mut recent = Recent::new(8);
        for index in 0..1_000 {
            assert!(recent.meet(content(index), index).1, "{index}");
            assert!(!recent.meet(content(0), 1_000 + index).1, "it is used all the time");
            assert!(recent.young.len() + recent.old.len() <= 8);
        }
        assert!(recent.meet(content(1), 2_000).1, "it was used long ago");
        let mut none = Recent::new(0);
        assert!(none.meet(content(1), 0).1 && none.meet(content(1), 1).1 && none.young.is_empty());
    }
}
