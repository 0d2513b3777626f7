//! The images of a tar, with the columns of their sidecars.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use foveate_source::blob::Blob;
use foveate_source::container::{ContainerOptions, Member, MemberContent, MemberName, Members};
use foveate_source::store::Version;
use foveate_source::{FetchError, NameFilter};

use crate::archive::{Archive, TarEntry};
use crate::buffers::Buffers;
use crate::columns;
use crate::links::Links;
use crate::name::{MemberRole, Sidecar, key, role};

/// Largest sidecar that is read.
const MAX_SIDECAR: u64 = 1 << 20;

/// Most bytes of images that wait for sidecars.
const MAX_WAITING: u64 = 64 << 20;

/// An image's memory in addition to its bytes and its name.
const OVERHEAD: u64 = 512;

pub(crate) struct TarMembers {
    archive: Archive,
    links: Links,
    max_bytes: u64,
    names: NameFilter,
    /// The fields that are read: the columns, and then the one with the ids if there is one.
    columns: Vec<String>,
    /// Those that a sidecar of some image has.
    seen: Vec<bool>,
    /// True if the last of them holds the ids.
    has_ids: bool,
    /// Images that wait for nothing. One to be skipped is `None`.
    ready: VecDeque<Option<Member>>,
    group: KeyGroup,
    /// Number of images to be found next that are skipped.
    unwanted: u64,
    end: Option<End>,
}

/// The end of the archive.
enum End {
    Reached,
    Damaged(FetchError),
}

/// Consecutive members with the same key.
#[derive(Default)]
struct KeyGroup {
    key: Vec<u8>,
    names: BTreeSet<Vec<u8>>,
    values: Box<[Option<String>]>,
    /// The columns that its sidecars have.
    seen: Box<[bool]>,
    /// Images that wait for the values.
    images: Vec<Option<Member>>,
    bytes: u64,
}

impl TarMembers {
    pub(crate) fn open(blob: Arc<dyn Blob>, options: &ContainerOptions, buffers: Buffers) -> Result<Self, FetchError> {
        Ok(Self {
            archive: Archive::open(Arc::clone(&blob), buffers.clone())?,
            links: Links::new(blob, buffers),
            max_bytes: options.max_bytes,
            names: options.names.clone(),
            columns: options.columns.iter().chain(&options.id_column).cloned().collect(),
            seen: vec![false; options.columns.len() + usize::from(options.id_column.is_some())],
            has_ids: options.id_column.is_some(),
            ready: VecDeque::new(),
            group: KeyGroup::default(),
            unwanted: 0,
            end: None,
        })
    }

    /// Takes one entry; `false` if there is none.
    fn advance(&mut self) -> Result<bool, FetchError> {
        match self.end.take() {
            Some(End::Damaged(error)) => {
                self.end = Some(End::Reached);
                return Err(error);
            }
            Some(End::Reached) => {
                self.end = Some(End::Reached);
                return Ok(false);
            }
            None => {}
        }
        match self.take_entry() {
            Ok(true) => return Ok(true),
            Ok(false) => self.end = Some(End::Reached),
            Err(error @ FetchError::Damaged(_)) => self.end = Some(End::Damaged(error)),
            // The storage's fault: sidecars may be missing, so the group is not complete.
            Err(error) => return Err(error),
        }
        self.release();
        Ok(true)
    }

    fn take_entry(&mut self) -> Result<bool, FetchError> {
        let Some(entry) = self.archive.next_entry()? else { return Ok(false) };
        match role(&entry.name) {
            MemberRole::Image if self.names.takes_member(&entry.name) => self.image(entry)?,
            MemberRole::Sidecar(kind) if self.reads(&entry) => self.sidecar(kind, &entry)?,
            _ => self.archive.pass(&entry)?,
        }
        Ok(true)
    }

    fn reads(&self, sidecar: &TarEntry) -> bool {
        !self.columns.is_empty()
            && NameFilter::default().takes_member(&sidecar.name)
            && sidecar.special.is_none()
            && sidecar.size <= MAX_SIDECAR
    }

    fn image(&mut self, entry: TarEntry) -> Result<(), FetchError> {
        let is_wanted = self.unwanted == 0;
        let mut len = entry.size;
        let content = match (is_wanted, entry.special) {
            (true, None) if entry.size <= self.max_bytes => MemberContent::Here(self.archive.read(&entry)?),
            (true, _) if entry.is_hard_link() => {
                let content = self.linked(&entry, &mut len)?;
                self.archive.pass(&entry)?;
                content
            }
            (_, special) => {
                self.archive.pass(&entry)?;
                MemberContent::Failed(
                    special.map_or(FetchError::TooLarge { bytes: entry.size, limit: self.max_bytes }, |what| {
                        FetchError::NotAFile(what.to_owned())
                    }),
                )
            }
        };
        // Not before: an image that is cut short has no outcome but the archive's.
        self.unwanted = self.unwanted.saturating_sub(1);
        self.turn_to(&entry.name);
        // The same for an image that is not wanted, so that the group ends where it would.
        let held = if entry.special.is_none() && entry.size <= self.max_bytes { entry.size } else { 0 };
        self.group.bytes += held + 2 * entry.name.len() as u64 + OVERHEAD;
        let version = Version { len: Some(len), modified: entry.modified, tag: None };
        let member = Member { name: MemberName::Key(entry.name), content, version, columns: Box::default() };
        self.group.images.push(is_wanted.then_some(member));
        if self.columns.is_empty() || self.group.bytes > MAX_WAITING {
            self.release();
        }
        Ok(())
    }

    /// The content of the member that a hard link names, and its length.
    fn linked(&mut self, link: &TarEntry, len: &mut u64) -> Result<MemberContent, FetchError> {
        let place = match self.links.find(link, self.archive.position()) {
            Ok(place) => place,
            Err(error @ FetchError::NotAFile(_)) => return Ok(MemberContent::Failed(error)),
            Err(error) => return Err(error),
        };
        *len = place.size;
        if place.size > self.max_bytes {
            return Ok(MemberContent::Failed(FetchError::TooLarge { bytes: place.size, limit: self.max_bytes }));
        }
        let content = self.links.read(place)?;
        Ok(content.map_or_else(|| MemberContent::Failed(FetchError::Changed(self.links.name())), MemberContent::Here))
    }

    fn sidecar(&mut self, kind: Sidecar, entry: &TarEntry) -> Result<(), FetchError> {
        let bytes = self.archive.read(entry)?;
        self.turn_to(&entry.name);
        columns::take(kind, &bytes, &self.columns, &mut self.group.values, &mut self.group.seen);
        Ok(())
    }

    /// Begins another group if a member with this name is not of the current one: it has another key, or its name was
    /// there before, because two samples with the same key follow each other.
    fn turn_to(&mut self, name: &[u8]) {
        if self.columns.is_empty() {
            return;
        }
        if self.group.key != key(name) || self.group.names.contains(name) {
            self.release();
            let values = vec![None; self.columns.len()].into_boxed_slice();
            let seen = vec![false; self.columns.len()].into_boxed_slice();
            self.group = KeyGroup { key: key(name).to_owned(), values, seen, ..KeyGroup::default() };
        }
        self.group.names.insert(name.to_owned());
    }

    /// Lets the group's images go, with the values that are known.
    fn release(&mut self) {
        if !self.group.images.is_empty() {
            self.seen.iter_mut().zip(&self.group.seen).for_each(|(seen, &is_here)| *seen |= is_here);
        }
        let KeyGroup { names, values, images, bytes, .. } = &mut self.group;
        *names = BTreeSet::new();
        *bytes = 0;
        let (values, id) = match values.split_last() {
            Some((id, values)) if self.has_ids => (values, id.clone()),
            _ => (&values[..], None),
        };
        for mut image in images.drain(..) {
            if let Some(image) = &mut image {
                image.columns = values.into();
                if let Some(id) = id.clone().filter(|id| !id.is_empty()) {
                    image.name = MemberName::Id(id);
                }
            }
            self.ready.push_back(image);
        }
    }
}

impl Members for TarMembers {
    fn next(&mut self) -> Result<Option<Member>, FetchError> {
        loop {
            while let Some(image) = self.ready.pop_front() {
                if image.is_some() {
                    return Ok(image);
                }
            }
            if !self.advance()? {
                return Ok(None);
            }
        }
    }

    fn skip(&mut self, count: u64) -> Result<(), FetchError> {
        self.unwanted = count;
        let known = self.ready.iter_mut().chain(&mut self.group.images).filter(|image| image.is_some());
        for image in known.take(usize::try_from(count).unwrap_or(usize::MAX)) {
            *image = None;
            self.unwanted -= 1;
        }
        if self.unwanted == 0 {
            return Ok(());
        }
        self.archive.skim(true)?;
        while self.unwanted > 0 && self.advance()? {}
        self.unwanted = 0;
        self.archive.skim(false)
    }

    fn absent(&self) -> Vec<&str> {
        let columns = self.columns.iter().zip(&self.seen).filter(|(_, seen)| !**seen);
        columns.map(|(name, _)| name.as_str()).collect()
    }
}
