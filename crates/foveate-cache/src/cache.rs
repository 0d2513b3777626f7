use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use foveate_pipeline::{ContentId, Known, Recall};

use crate::CacheError;
use crate::entry::{Key, entry};
use crate::store::Store;

/// A folder of vectors, for one set of settings.
pub struct Cache {
    /// `None` only while it is dropped.
    store: Option<Store>,
    settings: blake3::Hash,
    /// The process that opened it. In a fork, its threads are gone and its files are the parent's.
    process: u32,
}

impl Cache {
    /// Opens the cache in `folder`, which is created if it does not exist. Its files take at most `bytes`. `settings`
    /// are everything that decides an image's vector.
    ///
    /// # Errors
    /// If the folder cannot be used, or what is there is not an intact cache.
    pub fn open(folder: &Path, bytes: u64, settings: &BTreeMap<String, String>) -> Result<Self, CacheError> {
        let failed = |source| CacheError::Open { path: folder.to_owned(), source };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let folder = folder.canonicalize().map_err(failed)?;
        let store = Store::open(&folder, bytes)?;
        Ok(Self { store: Some(store), settings: digest(settings), process: std::process::id() })
    }

    fn store(&self) -> Option<&Store> {
        self.store.as_ref().filter(|_| self.process == std::process::id())
    }

    fn key(&self, content: &ContentId) -> Key {
        *blake3::Hasher::new().update(self.settings.as_bytes()).update(content.as_bytes()).finalize().as_bytes()
    }
}

fn digest(settings: &BTreeMap<String, String>) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for text in settings.iter().flat_map(|(name, value)| [name, value]) {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.finalize()
}

impl Recall for Cache {
    fn recall(&self, content: ContentId) -> Option<Known> {
        self.store()?.get(&self.key(&content))
    }

    fn remember(&self, content: ContentId, known: Known) {
        let Some(store) = self.store() else { return };
        let key = self.key(&content);
        store.put(key, entry(&key, &known));
    }
}

impl Drop for Cache {
    /// Waits for what is to be written. A fork leaves its parent's files alone.
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.store.take());
        }
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("process", &self.process).finish_non_exhaustive()
    }
}
