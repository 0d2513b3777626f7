//! The folders that a listing searched. They tell a file that is gone from a source that is gone as a whole.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::walk::readable;
use crate::{Fetch, FetchError, FileFetch, Item};

/// The folders where searches began: the inputs that are folders, and the folders before patterns' wildcards.
#[derive(Debug, Default)]
pub(crate) struct Roots(BTreeSet<PathBuf>);

impl Roots {
    pub(crate) fn insert(&mut self, folder: &Path) {
        self.0.insert(folder.to_owned());
    }

    /// The error for an item at `path` if the folder where it was found is gone: removed, renamed, unmounted (a mount
    /// point without its file system is an empty folder) or not accessible any more.
    fn gone(&self, path: &Path) -> Option<FetchError> {
        let folder = path.ancestors().skip(1).find(|above| self.0.contains(*above))?;
        let problem = match fs::read_dir(readable(folder)).map(|mut entries| entries.next().transpose()) {
            Err(error) | Ok(Err(error)) => format!("cannot be read any more: {error}"),
            Ok(Ok(None)) => "is empty now".to_owned(),
            Ok(Ok(Some(_))) => return None,
        };
        Some(FetchError::FolderGone { folder: folder.display().to_string(), problem })
    }
}

/// Reads a listing's files. A file that cannot be read because its whole folder is gone is no fault of the file.
pub(crate) struct ListedFetch {
    pub(crate) files: FileFetch,
    pub(crate) roots: Arc<Roots>,
}

impl Fetch for ListedFetch {
    fn fetch(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError> {
        self.files.fetch(item, out).map_err(|error| match error.suspects_storage() {
            true => self.roots.gone(&FileFetch::path(item)).unwrap_or(error),
            false => error,
        })
    }

    fn stamp(&mut self, item: &Item) -> Option<(u64, SystemTime)> {
        self.files.stamp(item)
    }
}
