//! The place of an output's files: a folder, or the objects below a prefix.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use bytes::Bytes;

use crate::publish::{create_folders, remove_if_there};
use crate::{AtomicFile, Prefix, SinkError, publish, sync_folder};

/// Largest object that every store takes in one request: 5000 MiB is Azure's limit, 5 GiB that of S3.
pub(crate) const MOST_OBJECT: u64 = 5000 << 20;

/// Attempts to create or replace an object that the store does not change, because of another writer's request for it.
const ATTEMPTS: u32 = 5;
const WAIT: Duration = Duration::from_millis(200);

/// A folder, or the objects whose names begin with `start` below a prefix. Each file appears whole or not at all.
#[derive(Clone, Debug)]
pub(crate) enum SinkPlace {
    Folder(PathBuf),
    Objects { prefix: Arc<dyn Prefix>, start: String },
}

impl SinkPlace {
    /// The place of a folder in this one.
    pub(crate) fn below(&self, folder: &str) -> Self {
        match self {
            Self::Folder(path) => Self::Folder(path.join(folder)),
            Self::Objects { prefix, start } => {
                Self::Objects { prefix: Arc::clone(prefix), start: format!("{start}{folder}/") }
            }
        }
    }

    /// The path or the address of a file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.join(name),
            Self::Objects { prefix, start } => Path::new(prefix.address()).join(format!("{start}{name}")),
        }
    }

    /// Reads a file; `None` if there is none.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, SinkError> {
        match self {
            Self::Objects { prefix, start } => prefix.read(&format!("{start}{name}")),
            Self::Folder(folder) => match fs::read(folder.join(name)) {
                // A file in place of the folder, too.
                Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => Ok(None),
                read => read.map(Some).map_err(SinkError::io("read", &folder.join(name))),
            },
        }
    }

    /// Reads a file and parses it; `None` if there is none.
    pub(crate) fn parse<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<Option<T>, SinkError> {
        let Some(content) = self.read(name)? else { return Ok(None) };
        parse(&content).map(Some).map_err(|reason| SinkError::damaged(&self.path(name), reason))
    }

    /// Creates a file. One that is there must have the same content.
    ///
    /// # Errors
    /// [`SinkError::Differs`] if it has another.
    pub(crate) fn create(&self, name: &str, content: Bytes) -> Result<(), SinkError> {
        self.exchange(name, None, content)
    }

    /// Creates a file where `old` is `None`, or replaces the one with this content. In a folder, a lock keeps other
    /// writers away, and nothing is compared.
    ///
    /// # Errors
    /// [`SinkError::Differs`] if the file has neither the old content nor the new one.
    pub(crate) fn exchange(&self, name: &str, old: Option<&[u8]>, content: Bytes) -> Result<(), SinkError> {
        let Self::Objects { prefix, start } = self else { return self.replace(name, content) };
        let key = format!("{start}{name}");
        for _ in 0..ATTEMPTS {
            let is_done = match old {
                None => prefix.create(&key, content.clone())?,
                Some(old) => prefix.exchange(&key, old, content.clone())?,
            };
            if is_done {
                return Ok(());
            }
            // The answer to a request that did it may have been lost.
            let found = prefix.read(&key)?;
            if found.as_deref() == Some(&content[..]) {
                return Ok(());
            }
            if found.as_deref() != old {
                break;
            }
            sleep(WAIT);
        }
        Err(SinkError::Differs(self.path(name)))
    }

    /// Creates or replaces a file.
    pub(crate) fn replace(&self, name: &str, content: Bytes) -> Result<(), SinkError> {
        match self {
            Self::Objects { prefix, start } => prefix.replace(&format!("{start}{name}"), content),
            Self::Folder(folder) => {
                let path = folder.join(name);
                create_folders(folder)?;
                let mut file = AtomicFile::create(&path)?;
                file.write_all(&content).map_err(SinkError::io("write", &path))?;
                file.publish()
            }
        }
    }

    /// Moves a complete, synced local file here. An object that is there must have the same content.
    pub(crate) fn take(&self, path: &Path, name: &str) -> Result<(), SinkError> {
        if let Self::Folder(folder) = self {
            return publish(path, &folder.join(name));
        }
        let bytes = fs::metadata(path).map_err(SinkError::io("inspect", path))?.len();
        if bytes > MOST_OBJECT {
            let reason = format!("{name} has {bytes} bytes, more than a store takes in one request");
            return Err(SinkError::Unsupported(reason));
        }
        self.create(name, fs::read(path).map_err(SinkError::io("read", path))?.into())?;
        remove_if_there(path)
    }

    /// Moves a file from another place here, over one that is there, unless that was done before.
    pub(crate) fn move_from(&self, other: &Self, from: &str, name: &str) -> Result<(), SinkError> {
        if let (Self::Folder(source), Self::Folder(folder)) = (other, self) {
            let path = source.join(from);
            return if path.exists() { publish(&path, &folder.join(name)) } else { Ok(()) };
        }
        match other.read(from)? {
            Some(content) => self.replace(name, content.into()),
            None => Ok(()),
        }
    }

    /// The names of the files here, and in a store also those below, with their lengths.
    pub(crate) fn list(&self) -> Result<BTreeMap<String, u64>, SinkError> {
        match self {
            Self::Objects { prefix, start } => {
                let found = prefix.list(start)?;
                Ok(found.into_iter().map(|(name, len)| (name[start.len()..].to_owned(), len)).collect())
            }
            Self::Folder(folder) => {
                let entries = match fs::read_dir(folder) {
                    Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
                    entries => entries.map_err(SinkError::io("list", folder))?,
                };
                let mut found = BTreeMap::new();
                for entry in entries {
                    let entry = entry.map_err(SinkError::io("list", folder))?;
                    let len = entry.metadata().map_or(0, |data| data.len());
                    found.insert(entry.file_name().to_string_lossy().into_owned(), len);
                }
                Ok(found)
            }
        }
    }

    /// Removes a file that may already be gone.
    pub(crate) fn remove(&self, name: &str) -> Result<(), SinkError> {
        match self {
            Self::Objects { prefix, start } => prefix.remove(&format!("{start}{name}")),
            Self::Folder(folder) => remove_if_there(&folder.join(name)),
        }
    }

    /// Makes removals durable.
    pub(crate) fn sync(&self) -> Result<(), SinkError> {
        match self {
            Self::Folder(folder) if folder.exists() => sync_folder(folder),
            _ => Ok(()),
        }
    }
}
