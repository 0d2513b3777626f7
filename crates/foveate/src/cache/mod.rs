//! Vectors by their image's content, in a folder that runs and processes share.
//!
//! An entry's key is BLAKE3 of the settings' fingerprint and of the image's [`ContentId`]. So other settings never hit,
//! and no picture can be made that gets another one's vector. An entry is the image's size and its vector, with a
//! checksum.
//!
//! - **Writes** are batched on a thread. Dropping a [`Cache`] waits for them; a crash loses them and leaves the rest.
//!   Entries that come faster than the disk takes them are dropped.
//! - **Reads** never wait for writes. Processes that use one folder at the same time give the same size.
//! - **Damage**: SQLite reads the database and never maps it. A damaged entry or page is a miss, and a damaged head a
//!   refusal. (A mapped LMDB was replaced: a flipped bit in it ended the process in 4 of 250 trials.)
//! - **Size**: entries are in two generations. A hit in the older one moves to the younger. A younger one of about a
//!   quarter of the size becomes the older one, whose predecessor is dropped. The files stay within the size, and do
//!   not shrink.
//! - **Forks**: a `Cache` of the parent is empty and takes nothing in the child, which opens its own. A program that
//!   forks while caches are in use does so under [`pause`]; the Python module does.
//! - **Place**: a local disk. SQLite's log needs memory that processes share.
//!
//! ```
//! use foveate::cache::Cache;
//! use foveate::core::Size;
//! use foveate::pipeline::{ContentId, KnownVector, Recall};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let settings = [("model".to_owned(), "dinov2-small".to_owned())].into();
//! let known = KnownVector { size: Size::new(640, 480), vector: vec![0.5, -1.0] };
//! let content = ContentId::of(b"a.jpg's bytes");
//! Cache::open(folder.path(), 64 << 20, &settings)?.remember(content, known.clone());
//!
//! let cache = Cache::open(folder.path(), 64 << 20, &settings)?;
//! assert_eq!(cache.recall(content), Some(known));
//! # Ok(())
//! # }
//! ```

mod entry;
mod error;
mod store;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use foveate_pipeline::{ContentId, KnownVector, Recall};

use entry::{Key, entry};
use store::CacheStore;

pub use error::CacheError;
pub use store::pause;

/// A folder of vectors, for one set of settings.
pub struct Cache {
    /// `None` only while it is dropped.
    store: Option<CacheStore>,
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
        let created = std::fs::create_dir_all(folder).and_then(|()| folder.canonicalize());
        let folder = created.map_err(|source| CacheError::Open { path: folder.to_owned(), source })?;
        let store = CacheStore::open(&folder, bytes)?;
        Ok(Self { store: Some(store), settings: digest(settings), process: std::process::id() })
    }

    fn store(&self) -> Option<&CacheStore> {
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
    fn recall(&self, content: ContentId) -> Option<KnownVector> {
        self.store()?.get(&self.key(&content))
    }

    fn remember(&self, content: ContentId, known: KnownVector) {
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
