use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use foveate_core::lock;
use foveate_pipeline::{Known, Recall};
use xxhash_rust::xxh3::Xxh3;

use crate::entry::key;
use crate::store::Store;
use crate::{CacheError, entry};

/// A folder of vectors, for one set of settings.
pub struct Cache {
    /// `None` only while it is dropped.
    store: Option<Arc<Store>>,
    settings: u128,
}

/// The open folders of this process: LMDB may open a file only once. A forked process has its own.
static OPEN: Mutex<Vec<(u32, Arc<Store>)>> = Mutex::new(Vec::new());

impl Cache {
    /// Opens the cache in `folder`, which is created if it does not exist. Its file takes at most `bytes`. `settings`
    /// are everything that decides an image's vector.
    ///
    /// # Errors
    /// If the folder cannot be used, or what is there is not an intact cache.
    pub fn open(folder: &Path, bytes: u64, settings: &BTreeMap<String, String>) -> Result<Self, CacheError> {
        let failed = |source| CacheError::Open { path: folder.to_owned(), source };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let folder = folder.canonicalize().map_err(failed)?;
        let process = std::process::id();
        let mut open = lock(&OPEN);
        let known = open.iter().find(|(of, store)| *of == process && store.folder == folder);
        let store = match known {
            Some((_, store)) => Arc::clone(store),
            None => Arc::new(Store::open(folder, bytes)?),
        };
        if known.is_none() {
            open.push((process, Arc::clone(&store)));
        }
        Ok(Self { store: Some(store), settings: digest(settings) })
    }

    fn store(&self) -> &Store {
        self.store.as_deref().unwrap_or_else(|| unreachable!("it is taken on drop alone"))
    }
}

fn digest(settings: &BTreeMap<String, String>) -> u128 {
    let mut hash = Xxh3::new();
    for text in settings.iter().flat_map(|(name, value)| [name, value]) {
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    }
    hash.digest128()
}

impl Recall for Cache {
    fn recall(&self, content: u128) -> Option<Known> {
        self.store().get(&key(self.settings, content))
    }

    fn remember(&self, content: u128, known: Known) {
        let key = key(self.settings, content);
        self.store().put(key, entry::value(&key, &known));
    }
}

impl Drop for Cache {
    /// Closes a folder that no other cache of the process has open.
    fn drop(&mut self) {
        let mut open = lock(&OPEN);
        let Some(store) = self.store.take() else { return };
        // This one and the list's.
        if Arc::strong_count(&store) == 2 {
            open.retain(|(_, other)| !Arc::ptr_eq(&store, other));
        }
        // Closed before another thread may open it again.
        drop(store);
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("folder", &self.store().folder).finish_non_exhaustive()
    }
}
