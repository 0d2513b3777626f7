//! Hard links, whose content is that of a member before them.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use foveate_source::FetchError;
use foveate_source::blob::Blob;

use crate::archive::{Archive, TarEntry};
use crate::buffers::Buffers;

/// Most bytes of memory for the names of one archive's files.
const MOST_MEMORY: usize = 256 << 20;

/// An entry's memory in addition to its name.
const OVERHEAD: usize = 64;

/// The place of a file's content in the tar.
#[derive(Clone, Copy)]
pub(crate) struct LinkPlace {
    start: u64,
    pub(crate) size: u64,
}

/// The files that links may name. Nothing is read or kept before the first link.
pub(crate) struct Links {
    blob: Arc<dyn Blob>,
    buffers: Buffers,
    /// A second reader, which follows from link to link.
    archive: Option<Archive>,
    places: HashMap<Vec<u8>, LinkPlace>,
    memory: usize,
}

impl Links {
    pub(crate) fn new(blob: Arc<dyn Blob>, buffers: Buffers) -> Self {
        Self { blob, buffers, archive: None, places: HashMap::new(), memory: 0 }
    }

    /// Finds the file that `link` names before `end`, where the link's header ends.
    pub(crate) fn find(&mut self, link: &TarEntry, end: u64) -> Result<LinkPlace, FetchError> {
        let target = String::from_utf8_lossy(&link.target);
        if self.blob.len().is_none() {
            let why = format!("a hard link to {target}, and a stream does not go back; read the archive from a file");
            return Err(FetchError::NotAFile(why));
        }
        self.follow(end)?;
        let place = self.places.get(&link.target).copied();
        place
            .ok_or_else(|| FetchError::NotAFile(format!("a hard link to {target}, and no file before it is called so")))
    }

    pub(crate) fn read(&self, place: LinkPlace) -> Result<Option<Bytes>, FetchError> {
        Archive::open(Arc::clone(&self.blob), self.buffers.clone())?.read_at(place.start, place.size)
    }

    /// The archive's name.
    pub(crate) fn name(&self) -> String {
        self.blob.name().to_owned()
    }

    /// Notes the files up to `end`.
    fn follow(&mut self, end: u64) -> Result<(), FetchError> {
        let archive = match &mut self.archive {
            Some(archive) => archive,
            none => {
                let mut archive = Archive::open(Arc::clone(&self.blob), self.buffers.clone())?;
                archive.skim(true)?;
                none.insert(archive)
            }
        };
        while archive.position() < end {
            let Some(entry) = archive.next_entry()? else { break };
            let start = archive.position();
            archive.pass(&entry)?;
            let place = if entry.is_hard_link() {
                self.places.get(&entry.target).copied()
            } else {
                entry.special.is_none().then_some(LinkPlace { start, size: entry.size })
            };
            let Some(place) = place else { continue };
            self.memory += entry.name.len() + OVERHEAD;
            if self.memory > MOST_MEMORY {
                let mib = MOST_MEMORY >> 20;
                return Err(FetchError::NotAFile(format!(
                    "a hard link, in an archive whose names take more than {mib} MiB of memory; unpack it"
                )));
            }
            self.places.insert(entry.name, place);
        }
        Ok(())
    }
}
