//! Looks at many inputs at once: an address in a store or on the web takes a round trip.

use std::thread;

use foveate_core::FaultScope;
use foveate_sink::{RecordedHash, Stamp};
use foveate_source::store::{Version, scheme_of};
use foveate_source::{Fetch, Item, Source, SourceError};

use crate::RunError;

/// Inputs that are looked at at once.
const SIDE_BY_SIDE: usize = 32;

/// Readers of one source.
pub(crate) struct Lookers {
    fetches: Vec<Box<dyn Fetch>>,
}

impl Lookers {
    /// # Errors
    /// If no reader can be opened.
    pub(crate) fn open(source: &dyn Source) -> Result<Self, SourceError> {
        let mut fetches = Vec::new();
        for _ in 0..SIDE_BY_SIDE {
            fetches.push(source.open_fetch()?);
        }
        Ok(Self { fetches })
    }

    /// Returns what is known of each item without reading it.
    pub(crate) fn stamps(&mut self, items: &[&Item]) -> Vec<Stamp> {
        self.each(items, |fetch, at| match items[at].fault {
            Some(_) => Stamp::default(),
            None => stamp_of(fetch, items[at]),
        })
    }

    /// Tells of each item whether its content has the hash in its place; `None` if it cannot be read.
    ///
    /// # Errors
    /// If the storage as a whole is gone.
    pub(crate) fn contents(&mut self, items: &[&Item], hashes: &[RecordedHash]) -> Result<Vec<Option<bool>>, RunError> {
        let contents = self.each(items, |fetch, at| {
            let mut bytes = Vec::new();
            match fetch.fetch(items[at], &mut bytes) {
                Ok(()) => Ok(Some(hashes[at].is_of(&bytes))),
                Err(error) if error.scope() == FaultScope::Run => Err(RunError::from(error)),
                Err(_) => Ok(None),
            }
        });
        contents.into_iter().collect()
    }

    /// Calls `look` with the number of each item, on several threads if there are addresses among them.
    fn each<T: Send>(&mut self, items: &[&Item], look: impl Fn(&mut dyn Fetch, usize) -> T + Sync) -> Vec<T> {
        let has_addresses = items.iter().any(|item| scheme_of(&item.locator).is_some());
        let threads = if has_addresses { items.len().clamp(1, SIDE_BY_SIDE) } else { 1 };
        let share = items.len().div_ceil(threads).max(1);
        let mut seen: Vec<Option<T>> = items.iter().map(|_| None).collect();
        thread::scope(|scope| {
            for (number, (fetch, seen)) in self.fetches.iter_mut().zip(seen.chunks_mut(share)).enumerate() {
                let look = &look;
                scope.spawn(move || {
                    for (at, seen) in seen.iter_mut().enumerate() {
                        *seen = Some(look(fetch.as_mut(), number * share + at));
                    }
                });
            }
        });
        seen.into_iter().flatten().collect()
    }
}

/// Returns what is known of an item without reading it, in the form in which a run records it.
pub fn stamp_of(fetch: &mut dyn Fetch, item: &Item) -> Stamp {
    stamp_of_version(&fetch.version(item))
}

pub(crate) fn stamp_of_version(version: &Version) -> Stamp {
    Stamp::new(version.len, version.modified, version.tag.as_deref())
}
