//! Walks folders in the byte order of path components, holding one folder's names per level in memory.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::id::to_bytes;

/// An entry of a folder, with links followed.
pub(crate) struct FolderEntry {
    pub(crate) name: OsString,
    pub(crate) kind: EntryKind,
    pub(crate) is_link: bool,
}

/// An entry's kind.
pub(crate) enum EntryKind {
    Folder,
    /// A file, or another non-folder (a pipe, a device); reading it decides.
    File,
    /// A broken link, or an entry that cannot be examined.
    Broken(String),
}

/// A folder's entries in the byte order of their names.
pub(crate) struct FolderEntries {
    pub(crate) entries: Vec<FolderEntry>,
    /// Reading the folder failed midway; earlier entries are in `entries`.
    pub(crate) broken_off: Option<io::Error>,
}

/// An empty path stands for the current folder when joined with names.
pub(crate) fn readable(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

/// Reads a folder.
pub(crate) fn read_folder(folder: &Path) -> io::Result<FolderEntries> {
    let mut found = FolderEntries { entries: Vec::new(), broken_off: None };
    for entry in fs::read_dir(folder)? {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                found.broken_off = Some(error);
                break;
            }
        };
        let name = entry.file_name();
        let kind = kind_of(&entry);
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        found.entries.push(FolderEntry { name, kind, is_link });
    }
    found.entries.sort_unstable_by(|a, b| a.name.as_encoded_bytes().cmp(b.name.as_encoded_bytes()));
    Ok(found)
}

fn kind_of(entry: &fs::DirEntry) -> EntryKind {
    let kind = match entry.file_type() {
        Ok(kind) if kind.is_symlink() => match fs::metadata(entry.path()) {
            Ok(target) => target.file_type(),
            Err(error) => return EntryKind::Broken(format!("symbolic link: {error}")),
        },
        Ok(kind) => kind,
        Err(error) => return EntryKind::Broken(error.to_string()),
    };
    if kind.is_dir() { EntryKind::Folder } else { EntryKind::File }
}

/// Identifies a folder regardless of the path that leads to it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct FolderId {
    #[cfg(unix)]
    device_inode: (u64, u64),
    #[cfg(not(unix))]
    canonical: PathBuf,
}

impl FolderId {
    /// The identity of the folder at `path`.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            fs::metadata(path).map(|data| Self { device_inode: (data.dev(), data.ino()) })
        }
        #[cfg(not(unix))]
        {
            fs::canonicalize(path).map(|canonical| Self { canonical })
        }
    }
}

/// The folders from the start of a walk down to its current position.
#[derive(Default)]
pub(crate) struct Ancestors(Vec<(FolderId, PathBuf)>);

impl Ancestors {
    /// Enters `folder`; an error says why it may not (it is its own ancestor, or unreadable).
    pub(crate) fn enter(&mut self, folder: &Path) -> Result<(), String> {
        let id = FolderId::of(folder).map_err(|error| error.to_string())?;
        if let Some((_, above)) = self.0.iter().find(|(known, _)| *known == id) {
            return Err(format!("symbolic link loop: leads back to {}", crate::id::id_of(&to_bytes(above))));
        }
        self.0.push((id, folder.to_owned()));
        Ok(())
    }

    /// The folder entered last.
    pub(crate) fn last(&self) -> Option<&FolderId> {
        self.0.last().map(|(id, _)| id)
    }

    /// Leaves the folder entered last.
    pub(crate) fn leave(&mut self) {
        self.0.pop();
    }
}
