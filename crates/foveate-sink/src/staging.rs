//! The folder of a run's work in progress, and the lock that keeps other processes from it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use crate::checks::{check, check_maker, check_place, is_begun, settings};
use crate::commit::{LOCK, PLAN};
pub use crate::failures::{FAILURES_HEADER, push_failure};
pub use crate::inputs::INPUTS_HEADER;
pub use crate::names::{FAILURES, INPUTS};
pub use crate::publish::{parent_of, remove_if_there};
use crate::site::{CLAIM, FORMER_JOURNAL};
use crate::{Layout, OutputNames, SinkError, SinkOptions, create_folders};

/// A folder for one run's work in progress, locked by this process for the value's lifetime.
#[derive(Debug)]
pub struct StagingFolder {
    folder: PathBuf,
    /// The folder that holds all shards' staging folders.
    common: Option<PathBuf>,
    lock: Lock,
}

impl StagingFolder {
    /// Creates the folder ([`OutputNames::staging`]) if needed and locks it; an error says that another process holds
    /// it.
    pub fn take(options: &SinkOptions, names: &OutputNames) -> Result<Self, SinkError> {
        let folder = names.staging();
        let common = (options.layout == Layout::Folder).then(|| parent_of(&folder).to_owned());
        Self::take_at(folder, common, options)
    }

    /// Creates and locks the folder for work of another kind.
    pub(crate) fn take_at(folder: PathBuf, common: Option<PathBuf>, options: &SinkOptions) -> Result<Self, SinkError> {
        // A run that finishes at this moment may remove the folder or the lock file at any point.
        for _ in 0..RETRIES {
            match create_folders(&folder) {
                Err(SinkError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => continue,
                created => created?,
            }
            if let Some(lock) = Lock::take(&folder.join(LOCK), &options.output)? {
                return Ok(Self { folder, common, lock });
            }
        }
        Err(SinkError::Locked(options.output.clone()))
    }

    /// The folder's path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of a file in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Removes everything in it but the lock.
    pub fn clear(&self) -> Result<(), SinkError> {
        remove_if_there(&self.join(FORMER_JOURNAL))?;
        remove_if_there(&self.join(CLAIM))?;
        for entry in fs::read_dir(&self.folder).map_err(SinkError::io("list", &self.folder))? {
            let path = entry.map_err(SinkError::io("list", &self.folder))?.path();
            if path.file_name().is_some_and(|name| name != LOCK && name != PLAN) {
                remove_if_there(&path)?;
            }
        }
        remove_if_there(&self.join(PLAN))
    }

    /// Removes a finished run's folder. No file in it may be open any more: FUSE and NFS keep a removed file under
    /// another name until it is closed, and so the folder with it.
    pub fn remove(self) -> Result<(), SinkError> {
        self.clear()?;
        let Self { folder, common, lock, .. } = self;
        let path = folder.join(LOCK);
        remove_if_there(&path)?; // while it is locked, so that it is no other process's
        drop(lock);
        remove_emptied(&folder, &path)?;
        if let Some(common) = common {
            // Fails while other shards are running, which is fine.
            let _ = fs::remove_dir(common);
        }
        Ok(())
    }

    /// Removes the folder if no run was begun in it. Ignores its own errors, because the error at hand matters more.
    pub fn discard_unused(self) {
        if ![FORMER_JOURNAL, CLAIM, PLAN].iter().any(|name| self.join(name).exists()) {
            let _ = self.remove();
        }
    }
}

const RETRIES: u32 = 50;
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// Removes a folder without files. FUSE forgets a closed file a moment after `close` returns.
fn remove_emptied(folder: &Path, lock: &Path) -> Result<(), SinkError> {
    let mut retries = 0..RETRIES;
    loop {
        match fs::remove_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // Another process has begun in it.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && lock.exists() => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && retries.next().is_some() => {
                std::thread::sleep(RETRY_AFTER);
            }
            result => return result.map_err(SinkError::io("remove", folder)),
        }
    }
}

/// A locked file.
#[derive(Debug)]
struct Lock(File);

impl Lock {
    /// Locks the file at `path`; `None` if it was removed meanwhile.
    fn take(path: &Path, output: &Path) -> Result<Option<Self>, SinkError> {
        let file = match File::options().create(true).truncate(false).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(SinkError::io("create", path))?,
        };
        match file.try_lock() {
            Ok(()) if is_file_at(&file, path) => Ok(Some(Self(file))),
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Err(SinkError::Locked(output.to_owned())),
            Err(TryLockError::Error(error)) => Err(SinkError::io("lock", path)(error)),
        }
    }
}

impl Drop for Lock {
    /// Closing the file is not enough: a child process that is being started at this moment has it open, too, and would
    /// hold the lock until it executes its own program.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Returns true if the open file is still the one at `path`: the previous owner of the lock may have removed it, and a
/// third process may have created the next one.
#[cfg(unix)]
fn is_file_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(named)) => open.dev() == named.dev() && open.ino() == named.ino(),
        _ => false,
    }
}

/// Elsewhere an open file cannot be removed.
#[cfg(not(unix))]
fn is_file_at(_file: &File, path: &Path) -> bool {
    path.exists()
}
