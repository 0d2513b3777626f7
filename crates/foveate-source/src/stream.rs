//! Reading ahead: containers member by member, objects many at a time, in the listing's order.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use foveate_core::{Backend as _, catch_panic, lock};

use crate::blob::{Blob, FileBlob, StandardInput};
use crate::container::{
    self, ContainerBackend, ContainerOptions, ContainerRegistry, Member, MemberContent, MemberName, format_of,
};
use crate::id::{id_of, to_path};
use crate::spool::{Record, Spool};
use crate::store::{Object, ReadAhead, Store, StoreOptions, StoreRegistry, Version, public, scheme_of, store_of};
use crate::{Content, Delivery, FetchError, Item, SourceError};

/// Containers that are open at once: the one being delivered, and the next.
const CONTAINERS: usize = 2;

/// Bytes of members that are handed over at once. A container has twice as many in memory: those that are delivered,
/// and those that are read meanwhile. With much more, each byte would leave the processor's cache before it is decoded.
const HANDFUL: usize = 2 << 20;

/// Records that may be under way at once; what they hold in memory is bounded by their stores and containers.
pub(crate) const MOST_AHEAD: usize = 8192;

/// Images of an archive in which a column is looked for: about a shard.
const MOST_TRIED: u64 = 10_000;

/// Paths of a table that are looked for.
const MOST_PATHS: usize = 10;

/// The path of standard input.
pub(crate) const STANDARD_INPUT: &[u8] = b"-";

/// The format of standard input.
const STANDARD_FORMAT: &str = "tar";

/// The formats and stores that a listing can read in addition to files.
#[derive(Default)]
pub(crate) struct Reach {
    pub(crate) containers: Option<Arc<ContainerRegistry>>,
    pub(crate) options: ContainerOptions,
    pub(crate) stores: Option<Arc<StoreRegistry>>,
    pub(crate) store_options: StoreOptions,
    /// By the names of their backends.
    opened: Mutex<BTreeMap<String, Arc<dyn Store>>>,
    /// One for all turns, which knows that it was read.
    standard_input: Arc<StandardInput>,
}

/// The subject of a record.
pub(crate) enum RecordKind<'a> {
    /// A file, which a fetch reads.
    File,
    /// An object, which its store reads ahead.
    Object(String),
    /// A container of images.
    Container(&'a ContainerBackend),
}

impl Reach {
    /// Returns true if there is nothing but files.
    pub(crate) fn is_files(&self) -> bool {
        self.containers.is_none() && self.stores.is_none()
    }

    pub(crate) fn kind(&self, path: &[u8]) -> RecordKind<'_> {
        let Some(containers) = &self.containers else { return self.single(path) };
        let format = match path {
            STANDARD_INPUT => containers.get(STANDARD_FORMAT).ok(),
            _ => format_of(containers, &public(path)),
        };
        format.map_or_else(|| self.single(path), RecordKind::Container)
    }

    fn single(&self, path: &[u8]) -> RecordKind<'_> {
        match scheme_of(path).filter(|_| self.stores.is_some()) {
            Some(scheme) => RecordKind::Object(scheme.to_owned()),
            None => RecordKind::File,
        }
    }

    /// The opened store of an address.
    pub(crate) fn store(&self, scheme: &str) -> Result<Arc<dyn Store>, SourceError> {
        let none = StoreRegistry::new("store", &[]);
        let backend = store_of(self.stores.as_deref().unwrap_or(&none), scheme)?;
        let mut opened = lock(&self.opened);
        if let Some(store) = opened.get(backend.name()) {
            return Ok(Arc::clone(store));
        }
        let store = backend.open(&self.store_options)?;
        opened.insert(backend.name().to_owned(), Arc::clone(&store));
        Ok(store)
    }

    /// Opens a container to check that it has the columns that the options name, and that what was taken for the paths
    /// of images are some. Of an archive, members are read until one has the columns. What else is wrong with it is its
    /// outcome when it is read.
    pub(crate) fn check_columns(&self, container: &Record) -> Result<(), SourceError> {
        let RecordKind::Container(format) = self.kind(&container.path) else { return Ok(()) };
        let checked = catch_panic(|| {
            let mut members = format.open(self.blob(container)?, &self.options)?;
            if format.has_schema() && self.options.image_column.is_none() {
                return find_files(members.as_mut());
            }
            self.find_columns(members.as_mut())
        });
        match checked {
            Ok(Err(FetchError::NoColumn(why))) => {
                Err(SourceError::Invalid(format!("{}: {why}", id_of(&container.path))))
            }
            _ => Ok(()),
        }
    }

    fn find_columns(&self, members: &mut dyn container::Members) -> Result<(), FetchError> {
        let is_asked = !self.options.columns.is_empty() || self.options.id_column.is_some();
        let mut images = 0;
        while is_asked && !members.absent().is_empty() && images < MOST_TRIED && members.next()?.is_some() {
            images += 1;
        }
        let absent = members.absent();
        if !is_asked || absent.is_empty() || images == 0 {
            return Ok(());
        }
        let absent = absent.join(", ");
        Err(FetchError::NoColumn(format!(
            "none of its first {images} images has {absent} in the JSON or text files of its name, which follow the \
             image in the archive; name other fields, or pack each image with its files"
        )))
    }

    fn blob(&self, record: &Record) -> Result<Arc<dyn Blob>, FetchError> {
        if record.path == STANDARD_INPUT {
            return Ok(Arc::clone(&self.standard_input) as _);
        }
        let Some(scheme) = scheme_of(&record.path) else {
            return Ok(Arc::new(FileBlob::open(&to_path(&record.path), id_of(&record.path))?));
        };
        let store = self.store(scheme).map_err(|error| FetchError::Refused(error.to_string()))?;
        store.open(&record.object())
    }
}

impl Record {
    fn object(&self) -> Object {
        let address = String::from_utf8_lossy(&self.path).into_owned();
        Object { address, version: Version::parse(&self.version) }
    }

    /// The record as an item.
    pub(crate) fn into_item(self, index: u64, place: u64) -> Item {
        let Self { path, fault, version } = self;
        Item {
            index,
            place,
            id: id_of(&path),
            version: Version::parse(&version),
            locator: path,
            fault: (!fault.is_empty()).then_some(fault),
            columns: Box::default(),
        }
    }
}

/// The place of member `member` of record `record`.
pub(crate) fn place(record: u64, member: u64) -> u64 {
    record << 32 | member.min(u64::from(u32::MAX))
}

/// The record of a place, and the number of its members up to and including that place.
pub(crate) fn after(place: u64) -> (u64, u64) {
    (place >> 32, (place & u64::from(u32::MAX)) + 1)
}

/// Records on their way.
pub(crate) struct RecordStream {
    reach: Arc<Reach>,
    /// Members of the next record to skip.
    skip: u64,
    /// A record that was taken from the spool and found no room yet.
    pending: Option<(u64, Record)>,
    ahead: VecDeque<RecordAhead>,
    containers: usize,
    objects: BTreeMap<String, Box<dyn ReadAhead>>,
}

/// A record on its way.
enum RecordAhead {
    Unread(u64, Record),
    Object { number: u64, record: Record, scheme: String },
    Container { number: u64, record: Record, members: ContainerReader, next: u64 },
}

impl RecordStream {
    /// A stream that begins `skip` members into the spool's next record.
    pub(crate) fn new(reach: Arc<Reach>, skip: u64) -> Self {
        let ahead = VecDeque::new();
        let objects = BTreeMap::new();
        Self { reach, skip, pending: None, ahead, containers: 0, objects }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_none() && self.ahead.is_empty()
    }

    /// The next item, with its place but without its index; `None` at record `end`. A listed object is read, and one
    /// that a row names is not.
    pub(crate) fn deliver(&mut self, spool: &mut Spool, end: u64) -> Result<Option<Delivery>, SourceError> {
        loop {
            self.fill(spool, end)?;
            let Some(first) = self.ahead.front_mut() else { return Ok(None) };
            if let RecordAhead::Container { number, record, members, next } = first {
                let found = members.next();
                let at = place(*number, *next);
                *next += 1;
                match found {
                    Some(Ok(member)) => return Ok(Some(delivered(record, member, at))),
                    // A container that is refused as a whole is an item: the next ones tell whether the store is gone.
                    Some(Err(error @ FetchError::Denied(_))) if *next == 1 => {
                        let item = record.clone().into_item(0, at);
                        return Ok(Some(Delivery { item, content: Content::Failed(error) }));
                    }
                    Some(Err(error)) if is_of_storage(&error) => {
                        return Err(SourceError::Interrupted { container: id_of(&record.path), source: error });
                    }
                    Some(Err(error)) => {
                        let item = record.clone().into_item(0, at);
                        return Ok(Some(Delivery { item, content: Content::Failed(error) }));
                    }
                    None => {
                        self.containers -= 1;
                        self.ahead.pop_front();
                        continue;
                    }
                }
            }
            match self.ahead.pop_front() {
                Some(RecordAhead::Unread(number, record)) => {
                    return Ok(Some(Delivery::unread(record.into_item(0, place(number, 0)))));
                }
                Some(RecordAhead::Object { number, record, scheme }) => {
                    let mut item = record.into_item(0, place(number, 0));
                    let content = match self.objects.get_mut(&scheme).map(|objects| objects.take()) {
                        Some(Ok((bytes, version))) => {
                            // A listing tells the time more exactly than an answer.
                            item.version = item.version.or(version);
                            Content::Read(bytes)
                        }
                        Some(Err(error)) => Content::Failed(error),
                        None => Content::Unread,
                    };
                    return Ok(Some(Delivery { item, content }));
                }
                Some(RecordAhead::Container { .. }) | None => {}
            }
        }
    }

    /// Begins to read as many of the next records as there is room for.
    fn fill(&mut self, spool: &mut Spool, end: u64) -> Result<(), SourceError> {
        while self.ahead.len() < MOST_AHEAD {
            if self.pending.is_none() && spool.position() < end {
                let mut record = Record::default();
                self.pending = spool.read(&mut record)?.map(|number| (number, record));
            }
            let Some((number, record)) = self.pending.take() else { return Ok(()) };
            if let Some(left) = self.begin(number, record)? {
                self.pending = Some(left);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Begins to read a record. Returns it if there is no room.
    fn begin(&mut self, number: u64, record: Record) -> Result<Option<(u64, Record)>, SourceError> {
        let skip = std::mem::take(&mut self.skip);
        let reach = Arc::clone(&self.reach);
        let ahead = match reach.kind(&record.path) {
            _ if !record.fault.is_empty() => RecordAhead::Unread(number, record),
            RecordKind::File => RecordAhead::Unread(number, record),
            RecordKind::Object(scheme) => {
                let store = reach.store(&scheme)?;
                let objects = self.objects.entry(scheme.clone()).or_insert_with(|| store.read_ahead());
                if !objects.has_room() {
                    return Ok(Some((number, record)));
                }
                objects.ask(record.object());
                RecordAhead::Object { number, record, scheme }
            }
            RecordKind::Container(_) if self.containers == CONTAINERS => return Ok(Some((number, record))),
            RecordKind::Container(_) => {
                self.containers += 1;
                let members = ContainerReader::start(Arc::clone(&reach), record.clone(), skip)?;
                self.ahead.push_back(RecordAhead::Container { number, record, members, next: skip });
                return Ok(None);
            }
        };
        // Anything but a container has one member.
        if skip == 0 {
            self.ahead.push_back(ahead);
        }
        Ok(None)
    }
}

/// Refuses a table whose first rows name files of which none is there: its columns may have been misread.
fn find_files(members: &mut dyn container::Members) -> Result<(), FetchError> {
    let mut absent = Vec::new();
    while absent.len() < MOST_PATHS {
        let Some(Member { content: MemberContent::At(path), .. }) = members.next()? else { break };
        if scheme_of(&path).is_some() || to_path(&path).exists() {
            return Ok(());
        }
        absent.push(path);
    }
    let Some(first) = absent.first() else { return Ok(()) };
    Err(FetchError::NoColumn(format!(
        "a column was taken for paths of images by its values, but none of its first {} files is there ({}); name the \
         image column, or bring the files back",
        absent.len(),
        id_of(first)
    )))
}

/// Returns true if an error says nothing about the container itself, so that its other members may be read later.
fn is_of_storage(error: &FetchError) -> bool {
    match error {
        FetchError::Io(error) => !matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory
        ),
        error => error.suspects_storage(),
    }
}

fn delivered(container: &Record, member: Member, place: u64) -> Delivery {
    let Member { name, content, version, columns } = member;
    let id = match name {
        MemberName::Key(key) => format!("{}/{}", id_of(&container.path), id_of(&key)),
        MemberName::Id(id) => id,
    };
    // A member is another one as soon as its container is.
    let of_container = Version::parse(&container.version);
    let version_here = if of_container.is_known() { of_container } else { version.clone() };
    let (locator, content, version) = match content {
        MemberContent::Here(bytes) => (container.path.clone(), Content::Read(bytes), version_here),
        MemberContent::At(locator) => (locator, Content::Unread, version),
        MemberContent::Failed(error) => (container.path.clone(), Content::Failed(error), version_here),
    };
    Delivery { item: Item { index: 0, place, id, locator, fault: None, version, columns }, content }
}

/// Reads one container on a separate thread.
struct ContainerReader {
    members: Arc<MemberBuffer>,
    /// Members that were handed over, and are not delivered yet.
    taken: VecDeque<Found>,
}

/// A member, or why there are no more.
type Found = Result<Member, FetchError>;

/// Members read ahead.
#[derive(Default)]
struct MemberBuffer {
    state: Mutex<BufferedMembers>,
    changed: Condvar,
}

#[derive(Default)]
struct BufferedMembers {
    read: VecDeque<Found>,
    bytes: usize,
    /// The container's end is reached, or the reader is gone.
    ended: bool,
}

impl ContainerReader {
    fn start(reach: Arc<Reach>, record: Record, skip: u64) -> Result<Self, SourceError> {
        let members = Arc::new(MemberBuffer::default());
        let read = {
            let members = Arc::clone(&members);
            move || {
                let mut skips = skip > 0;
                let read = catch_panic(|| members.read(&reach, &record, skip, &mut skips));
                let read = read.unwrap_or_else(|message| Err(FetchError::Damaged(message)));
                match read {
                    // It was the container's last outcome, and is one of those to skip.
                    Err(error) if skips && !is_of_storage(&error) => {}
                    Err(error) => drop(members.push(Err(error))),
                    Ok(()) => {}
                }
                members.end();
            }
        };
        let thread = thread::Builder::new().name("container".to_owned()).spawn(read);
        thread.map_err(|source| SourceError::Io { action: "start a thread for a container".to_owned(), source })?;
        Ok(Self { members, taken: VecDeque::new() })
    }

    fn next(&mut self) -> Option<Found> {
        if self.taken.is_empty() {
            self.taken = self.members.take();
        }
        self.taken.pop_front()
    }
}

impl Drop for ContainerReader {
    fn drop(&mut self) {
        self.members.end();
    }
}

impl MemberBuffer {
    /// Reads the members after the first `skip`; `skips` says whether it has come that far.
    fn read(&self, reach: &Reach, record: &Record, skip: u64, skips: &mut bool) -> Result<(), FetchError> {
        let RecordKind::Container(format) = reach.kind(&record.path) else { return Ok(()) };
        let mut members = format.open(reach.blob(record)?, &reach.options)?;
        members.skip(skip)?;
        *skips = false;
        while let Some(member) = members.next()? {
            if !self.push(Ok(member)) {
                break;
            }
        }
        Ok(())
    }

    /// Adds a member once there is room for it. Returns false if the reader is gone.
    fn push(&self, member: Found) -> bool {
        let bytes = weight(&member);
        let mut state = lock(&self.state);
        while !state.ended && !state.read.is_empty() && state.bytes + bytes > HANDFUL {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.ended {
            return false;
        }
        state.bytes += bytes;
        state.read.push_back(member);
        if state.read.len() == 1 {
            self.changed.notify_all();
        }
        true
    }

    /// Takes all members that are there, at least one; none at the end.
    fn take(&self) -> VecDeque<Found> {
        let mut state = lock(&self.state);
        while !state.ended && state.read.is_empty() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.bytes = 0;
        self.changed.notify_all();
        std::mem::take(&mut state.read)
    }

    fn end(&self) {
        lock(&self.state).ended = true;
        self.changed.notify_all();
    }
}

/// A member's memory, with a share for everything but its bytes.
fn weight(member: &Found) -> usize {
    const BESIDE: usize = 512;
    match member {
        Ok(Member { content: MemberContent::Here(bytes), .. }) => bytes.len() + BESIDE,
        _ => BESIDE,
    }
}
