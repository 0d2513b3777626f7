//! Files that appear complete or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::SinkError;

/// A file that appears under its name only when [`publish`](Self::publish) returns.
///
/// It is written under a temporary name in the same folder (so that the rename stays in one file system), synced,
/// renamed, and the folder is synced. Dropping it unpublished removes the temporary file.
///
/// ```
/// use std::io::Write;
/// # let dir = tempfile::tempdir()?;
/// let path = dir.path().join("summary.json");
/// let mut file = foveate_sink::AtomicFile::create(&path)?;
/// file.write_all(b"{}\n")?;
/// assert!(!path.exists());
/// file.publish()?;
/// assert_eq!(std::fs::read(&path)?, b"{}\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct AtomicFile {
    file: File,
    staged: PathBuf,
    target: PathBuf,
    published: bool,
}

impl AtomicFile {
    /// Starts a file that replaces any file at `target`. One writer per target at a time. The temporary name is fixed,
    /// so a crash leaves at most one stray file, which the next writer replaces.
    pub fn create(target: &Path) -> Result<Self, SinkError> {
        let staged = temporary_name(target);
        let file = File::create(&staged).map_err(SinkError::io("create", &staged))?;
        Ok(Self { file, staged, target: target.to_owned(), published: false })
    }

    /// Another handle of the file, for a library that writes it.
    pub fn handle(&self) -> Result<File, SinkError> {
        self.file.try_clone().map_err(SinkError::io("open", &self.staged))
    }

    /// Makes the content durable and visible under the final name.
    pub fn publish(mut self) -> Result<(), SinkError> {
        self.file.sync_all().map_err(SinkError::io("sync", &self.staged))?;
        publish(&self.staged, &self.target)?;
        self.published = true;
        Ok(())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.published {
            // Nothing can handle a failure here, and a stray temporary file does no harm.
            let _ = fs::remove_file(&self.staged);
        }
    }
}

fn temporary_name(target: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(".new");
    target.with_file_name(name)
}

/// Gives a complete, synced file its final name (same file system), and makes that durable.
pub fn publish(staged: &Path, target: &Path) -> Result<(), SinkError> {
    fs::rename(staged, target).map_err(SinkError::io("publish", target))?;
    sync_folder(parent_of(target))
}

/// Makes a file's content durable.
pub fn sync_file(path: &Path) -> Result<(), SinkError> {
    // Open for writing, because some systems refuse to sync a file that was opened for reading.
    let file = File::options().write(true).open(path).map_err(SinkError::io("open", path))?;
    file.sync_all().map_err(SinkError::io("sync", path))
}

/// Makes a folder's names durable: files created in it, renamed into it or removed from it.
#[cfg(unix)]
pub fn sync_folder(folder: &Path) -> Result<(), SinkError> {
    let handle = File::open(folder).map_err(SinkError::io("open", folder))?;
    match handle.sync_all() {
        // Some network and FUSE file systems cannot sync folders; they order renames themselves.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        result => result.map_err(SinkError::io("sync", folder)),
    }
}

/// Makes a folder's names durable: files created in it, renamed into it or removed from it.
#[cfg(not(unix))]
pub fn sync_folder(_folder: &Path) -> Result<(), SinkError> {
    Ok(()) // elsewhere folders cannot be opened; the file system journals names itself
}

/// Creates a folder and its missing parents. Each is durable: its own parent is synced.
pub fn create_folders(folder: &Path) -> Result<(), SinkError> {
    let missing: Vec<&Path> =
        folder.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists()).collect();
    for folder in missing.into_iter().rev() {
        match fs::create_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(SinkError::io("create", folder)(error));
            }
            _ => sync_folder(parent_of(folder))?,
        }
    }
    Ok(())
}

/// A path's folder; `.` for a bare name.
pub fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Removes a file that may already be gone.
pub fn remove_if_there(path: &Path) -> Result<(), SinkError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(SinkError::io("remove", path)(error)),
        _ => Ok(()),
    }
}

/// XXH3-64 of a file, 16 lower-case hexadecimal digits.
pub fn hash_file(path: &Path) -> Result<String, SinkError> {
    let mut file = File::open(path).map_err(SinkError::io("open", path))?;
    let mut hash = Xxh3::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(format!("{:016x}", hash.digest())),
            Ok(read) => hash.update(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(SinkError::io("read", path)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unpublished_file_leaves_nothing_and_keeps_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("x");
        fs::write(&target, "old").unwrap();
        let mut file = AtomicFile::create(&target).unwrap();
        file.write_all(b"new").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&target).unwrap(), "old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn publishing_replaces_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("x");
        fs::write(&target, "old").unwrap();
        let mut file = AtomicFile::create(&target).unwrap();
        file.write_all(b"new").unwrap();
        file.publish().unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = AtomicFile::create(Path::new("/no/such/folder/x")).unwrap_err().to_string();
        assert!(error.contains("/no/such/folder"), "{error}");
    }
}
