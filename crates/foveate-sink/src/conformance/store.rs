//! A folder as an object store, whose requests go wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use foveate_core::lock;

use super::files::{FileTree, snapshot};
use crate::{Prefix, SinkError};

/// A folder as a prefix of an object store.
pub(super) struct FolderPrefix {
    pub(super) folder: PathBuf,
    pub(super) address: String,
    pub(super) requests: AtomicUsize,
    /// The request that goes wrong, and how.
    pub(super) fault: Option<(usize, RequestFault)>,
    /// The manifest that another writer puts there before this one's request to do so.
    pub(super) rival: Option<Vec<u8>>,
}

/// An object appears whole, and a condition holds until its request is done. Writers of one folder have a prefix each.
static ONE_REQUEST: Mutex<()> = Mutex::new(());

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RequestFault {
    /// Neither it nor any later one is done, as if the writer died.
    IsTheEnd,
    /// It is done, and fails nevertheless.
    LosesItsAnswer,
    /// It is done, its answer is lost, and it is repeated.
    IsRepeated,
}

impl FolderPrefix {
    pub(super) fn new(folder: &Path) -> Self {
        let address = format!("{}/", folder.display());
        let requests = AtomicUsize::new(0);
        Self { folder: folder.to_owned(), address, requests, fault: None, rival: None }
    }

    fn request<T>(&self, act: impl Fn() -> io::Result<T>) -> Result<T, SinkError> {
        let _one = lock(&ONE_REQUEST);
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let fault = self.fault.filter(|(at, fault)| match fault {
            RequestFault::IsTheEnd => *at <= number,
            _ => *at == number,
        });
        let fault = fault.map(|(_, fault)| fault);
        if matches!(fault, Some(RequestFault::LosesItsAnswer | RequestFault::IsRepeated)) {
            act().unwrap();
        }
        match fault {
            None | Some(RequestFault::IsRepeated) => Ok(act().unwrap()),
            Some(_) => Err(SinkError::Store { action: "write to", source: format!("request {number}").into() }),
        }
    }

    /// Writes an object if it has the `old` content, which is that of none for `None`.
    fn write_if(&self, name: &str, old: Option<&[u8]>, content: &[u8]) -> io::Result<bool> {
        if let Some(manifest) = self.rival.as_ref().filter(|_| name == "_manifest.json") {
            self.write(name, manifest)?;
        }
        let found = if_there(fs::read(self.folder.join(name)))?;
        if found.as_deref() != old {
            return Ok(false);
        }
        self.write(name, content).map(|()| true)
    }

    fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().unwrap())?;
        fs::write(path, content)
    }
}

/// Nothing if it is not there.
fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

impl Prefix for FolderPrefix {
    fn address(&self) -> &str {
        &self.address
    }

    fn create(&self, name: &str, content: Bytes) -> Result<bool, SinkError> {
        self.request(|| self.write_if(name, None, &content))
    }

    fn exchange(&self, name: &str, old: &[u8], content: Bytes) -> Result<bool, SinkError> {
        self.request(|| self.write_if(name, Some(old), &content))
    }

    fn replace(&self, name: &str, content: Bytes) -> Result<(), SinkError> {
        self.request(|| self.write(name, &content))
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, SinkError> {
        self.request(|| if_there(fs::read(self.folder.join(name))))
    }

    fn list(&self, start: &str) -> Result<BTreeMap<String, u64>, SinkError> {
        self.request(|| {
            let all = if self.folder.exists() { snapshot(&self.folder) } else { FileTree::new() };
            let all = all.into_iter().map(|(path, bytes)| (path.to_string_lossy().into_owned(), bytes.len() as u64));
            Ok(all.filter(|(name, _)| name.starts_with(start)).collect())
        })
    }

    fn remove(&self, name: &str) -> Result<(), SinkError> {
        self.request(|| if_there(fs::remove_file(self.folder.join(name))).map(drop))
    }
}

impl fmt::Debug for FolderPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FolderPrefix").field("address", &self.address).finish_non_exhaustive()
    }
}
