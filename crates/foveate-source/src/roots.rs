//! The folders that a listing searched. They tell a file that is gone from a source that is gone as a whole.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::id::{id_of, to_bytes};
use crate::stream::{Reach, RecordKind};
use crate::version::Version;
use crate::walk::readable;
use crate::{Fetch, FetchError, FileFetch, Item};

/// The folders where searches began: the inputs that are folders, and the folders before patterns' wildcards.
#[derive(Debug, Default)]
pub(crate) struct Roots(BTreeSet<PathBuf>);

impl Roots {
    pub(crate) fn insert(&mut self, folder: &Path) {
        self.0.insert(folder.to_owned());
    }

    /// The folders' paths.
    pub(crate) fn paths(&self) -> impl Iterator<Item = Vec<u8>> {
        self.0.iter().map(|folder| to_bytes(folder))
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

/// Reads a listing's files and objects. A file that cannot be read because its whole folder is gone is no fault of the
/// file.
pub(crate) struct ListedFetch {
    files: FileFetch,
    roots: Arc<Roots>,
    reach: Arc<Reach>,
    stores: BTreeMap<String, Box<dyn Fetch>>,
}

impl ListedFetch {
    pub(crate) fn new(files: FileFetch, roots: Arc<Roots>, reach: Arc<Reach>) -> Self {
        Self { files, roots, reach, stores: BTreeMap::new() }
    }

    fn file(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError> {
        self.files.fetch(item, out).map_err(|error| {
            if error.suspects_storage() {
                self.roots.gone(&FileFetch::path(item)).unwrap_or_else(|| self.named(item, error))
            } else {
                error
            }
        })
    }

    /// Names the file if the item's id does not, as that of a table's row, and says if its column is a guess.
    fn named(&self, item: &Item, error: FetchError) -> FetchError {
        let path = id_of(&item.locator);
        let guess = match self.reach.options.image_column {
            None => " (a path of the column that looks like images' paths; if it is another, name the image column)",
            Some(_) => "",
        };
        match error {
            FetchError::Io(error) if item.id != path => {
                io::Error::new(error.kind(), format!("{path}: {error}{guess}")).into()
            }
            error => error,
        }
    }

    fn store(&mut self, scheme: &str) -> Result<&mut dyn Fetch, FetchError> {
        match self.stores.entry(scheme.to_owned()) {
            Entry::Occupied(known) => Ok(known.into_mut().as_mut()),
            Entry::Vacant(new) => {
                let store = self.reach.store(scheme).map_err(|error| FetchError::Refused(error.to_string()))?;
                Ok(new.insert(store.fetch()).as_mut())
            }
        }
    }
}

impl Fetch for ListedFetch {
    fn fetch(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError> {
        match self.reach.kind(&item.locator) {
            RecordKind::Object(scheme) => self.store(&scheme)?.fetch(item, out),
            RecordKind::Container(_) => {
                out.clear();
                Err(FetchError::Refused("it is read in order with the other images of its container".to_owned()))
            }
            _ => self.file(item, out),
        }
    }

    fn version(&mut self, item: &Item) -> Version {
        if item.version.is_known() {
            return item.version.clone();
        }
        match self.reach.kind(&item.locator) {
            RecordKind::File => self.files.version(item),
            RecordKind::Object(scheme) => match self.store(&scheme) {
                Ok(store) => store.version(item),
                Err(_) => Version::default(),
            },
            RecordKind::Container(_) => Version::default(),
        }
    }
}
