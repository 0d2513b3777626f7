//! Updates of an output: which inputs of a listing it does not have yet.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use foveate_core::lock;
use foveate_sink::{InputRecord, Likeness, RecordedHash, RecordedInputs, SinkError, Stamp, StoredRun};
use foveate_source::{Content, Delivery, Extent, Fetch, Item, Listing, Source, SourceError};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::lookers::{Lookers, stamp_of, stamp_of_version};
use crate::{FailurePolicy, RunError};

mod brakes;
mod changes;
mod earlier;

pub use changes::{Changes, InputChange};
pub use earlier::EarlierRows;

/// The inputs that an update embeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// Inputs that were added, that changed since, and that could not be read.
    Changes {
        /// Inputs are compared by hash, not by size and time.
        by_content: bool,
        /// Inputs that are gone leave the output.
        prune: bool,
    },
    /// Inputs that failed.
    Failures,
}

/// An output's inputs, and what a new listing shows of each: 113 bytes for each slot of a table in memory.
#[derive(Debug)]
pub struct KnownInputs {
    update: Update,
    inputs: HashMap<u128, KnownInput>,
    /// The same inputs on disk, with their ids.
    recorded: Option<RecordedInputs>,
    max_removed: FailurePolicy,
    /// An input of the output.
    known_id: Option<String>,
    /// An input that the output does not have.
    added_id: Option<String>,
    wanted_sizes: WantedSizes,
}

/// Lengths of what an update embeds.
#[derive(Debug, Default)]
struct WantedSizes {
    known: HashSet<u64>,
    /// There are others, those of containers' members among them.
    has_others: bool,
}

impl WantedSizes {
    fn add(&mut self, stamp: Stamp) {
        match stamp.bytes {
            Some(bytes) => drop(self.known.insert(bytes)),
            None => self.has_others = true,
        }
    }

    fn has(&self, stamp: Stamp) -> bool {
        self.has_others || stamp.bytes.is_none_or(|bytes| self.known.contains(&bytes))
    }
}

#[derive(Clone, Copy, Debug)]
struct KnownInput {
    stamp: Stamp,
    hash: Option<RecordedHash>,
    is_touched: bool,
    compared_by: Option<ComparedBy>,
    /// It is the failure of a container that is read again, and goes unless the container fails again.
    is_container: bool,
    state: InputState,
}

impl KnownInput {
    fn new(stamp: Stamp, hash: Option<RecordedHash>, state: InputState) -> Self {
        Self { stamp, hash, is_touched: false, compared_by: None, is_container: false, state }
    }
}

/// The kind of evidence by which an input was compared with the one that the output has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ComparedBy {
    Time,
    Tag,
    Content,
}

impl ComparedBy {
    fn of(was: Stamp, now: Stamp) -> Self {
        match was.compare(&now) {
            Likeness::SameTag => Self::Tag,
            Likeness::Other if was.etag.is_some() && now.etag.is_some() => Self::Tag,
            Likeness::SameTime | Likeness::Other => Self::Time,
            Likeness::Unknown => Self::Content,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputState {
    /// The listing has not shown it.
    Gone,
    /// It is as it was. Containers' members are known when their container is read.
    Kept { is_member: bool },
    /// It is listed, and to be embedded.
    Wanted { is_new: bool, is_member: bool },
    /// It failed, and is to be tried again if the listing has it.
    Failed,
    /// It is listed, but could not be read, and stays as it was.
    Unreadable { is_member: bool },
}

fn key(id: &str) -> u128 {
    xxh3_128(id.as_bytes())
}

impl KnownInputs {
    /// Reads what a run recorded.
    ///
    /// # Errors
    /// If it recorded no inputs, or two of one id.
    fn read(run: &StoredRun, update: Update, max_removed: FailurePolicy) -> Result<Self, RunError> {
        let recorded = run.inputs()?;
        let mut inputs = HashMap::new();
        let mut known_id = None;
        for record in recorded.iter().map(RecordedInputs::read).collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
            let record = record?;
            let input = KnownInput::new(record.stamp, record.hash(), InputState::Gone);
            if inputs.insert(key(&record.id), input).is_some() {
                return Err(twice(&record.id).into());
            }
            known_id.get_or_insert(record.id);
        }
        if update == Update::Failures {
            for failure in run.failures()? {
                if let Some(input) = inputs.get_mut(&key(&failure?.id)) {
                    input.state = InputState::Failed;
                }
            }
        }
        let wanted_sizes = WantedSizes::default();
        Ok(Self { update, inputs, recorded, max_removed, known_id, added_id: None, wanted_sizes })
    }

    /// Decides what becomes of an input of the output; see [`Keep`](foveate_sink::Keep).
    pub fn keep(&self, record: &InputRecord) -> Option<InputRecord> {
        let input = self.inputs.get(&key(&record.id))?;
        match (input.state, self.update) {
            (InputState::Wanted { .. }, _) | (InputState::Gone, Update::Changes { prune: true, .. }) => None,
            (InputState::Gone, _) if input.is_container => None,
            _ => Some(InputRecord { stamp: input.stamp, ..record.clone() }),
        }
    }

    /// Decides what of the later run's inputs follows. Only a reading replaces what the output has of an input.
    pub fn take(&self, record: &InputRecord) -> Option<InputRecord> {
        let known = self.inputs.get(&key(&record.id));
        let is_kept = known.is_some_and(|input| matches!(input.state, InputState::Unreadable { .. }));
        (!is_kept).then(|| record.clone())
    }

    /// Returns true if the output's vector of this input may be that of an input which is embedded now: a renamed one,
    /// or this one with another time.
    pub fn may_return(&self, record: &InputRecord) -> bool {
        let state = self.inputs.get(&key(&record.id)).map(|input| input.state);
        let is_kept = matches!(state, Some(InputState::Kept { .. } | InputState::Unreadable { .. }));
        !is_kept && record.xxh3.is_some() && self.wanted_sizes.has(record.stamp)
    }

    /// Learns from the complete later run which inputs could not be read.
    ///
    /// # Errors
    /// If the run's record cannot be read.
    pub fn learn(&mut self, later: &StoredRun) -> Result<(), RunError> {
        let Some(recorded) = later.inputs()? else { return Ok(()) };
        for record in recorded.read()? {
            let InputRecord { id, xxh3: None, .. } = record? else { continue };
            match self.inputs.get_mut(&key(&id)) {
                Some(input) if input.hash.is_some() => input.state = InputState::Unreadable { is_member: false },
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads the inputs that the output has.
    ///
    /// # Errors
    /// If the output's record cannot be read.
    pub fn recorded(&self) -> Result<impl Iterator<Item = Result<InputRecord, SinkError>> + use<>, SinkError> {
        Ok(self.recorded.as_ref().map(RecordedInputs::read).transpose()?.into_iter().flatten())
    }

    /// The recorded hash of an input with this stamp, if only its content tells whether it changed.
    fn needs_content(&self, item: &Item, stamp: Stamp) -> Option<RecordedHash> {
        let input = self.inputs.get(&key(&item.id))?;
        let is_compared = input.state == InputState::Gone && item.fault.is_none();
        let is_unknown = is_compared && self.likeness(input, stamp) == Likeness::Unknown;
        input.hash.filter(|_| is_unknown)
    }

    /// Compares the stamps; they say nothing if inputs are compared by content.
    fn likeness(&self, input: &KnownInput, stamp: Stamp) -> Likeness {
        match self.update {
            Update::Changes { by_content: false, .. } => input.stamp.compare(&stamp),
            _ => Likeness::Unknown,
        }
    }

    /// Returns true if an input with this stamp is to be embedded. `is_of` says whether its content has a hash; `None`
    /// if it cannot be read.
    fn wants(
        &mut self,
        item: &Item,
        stamp: Stamp,
        is_member: bool,
        is_of: impl FnOnce(RecordedHash) -> Result<Option<bool>, RunError>,
    ) -> Result<bool, RunError> {
        let Some(mut input) = self.inputs.get(&key(&item.id)).copied() else {
            if self.update != Update::Failures {
                let state = InputState::Wanted { is_new: true, is_member };
                let input = KnownInput::new(stamp, None, state);
                self.inputs.insert(key(&item.id), input);
                self.added_id.get_or_insert_with(|| item.id.clone());
            }
            return Ok(self.update != Update::Failures);
        };
        match (input.state, self.update) {
            (InputState::Failed, _) => {
                input.state = InputState::Wanted { is_new: false, is_member };
                self.inputs.insert(key(&item.id), input);
                return Ok(true);
            }
            (_, Update::Failures) => return Ok(false),
            (InputState::Gone, _) => {}
            _ => return Err(twice(&item.id).into()),
        }
        let likeness = self.likeness(&input, stamp);
        let mut by = ComparedBy::of(input.stamp, stamp);
        input.state = match (input.hash, likeness) {
            (Some(_), _) if item.fault.is_some() => InputState::Unreadable { is_member },
            (Some(_), Likeness::SameTag | Likeness::SameTime) => InputState::Kept { is_member },
            // Files that differ are read once, by the run that embeds them; members are at hand.
            (Some(was), _) if likeness == Likeness::Unknown || is_member => {
                by = ComparedBy::Content;
                match is_of(was)? {
                    None => InputState::Unreadable { is_member },
                    Some(true) => InputState::Kept { is_member },
                    Some(false) => InputState::Wanted { is_new: false, is_member },
                }
            }
            _ => InputState::Wanted { is_new: false, is_member },
        };
        if input.hash.is_some() && item.fault.is_none() {
            input.compared_by = Some(by);
        }
        // Without a hash there is no new stamp: the old vector would pass for one of the new file.
        let known = stamp.or(input.stamp);
        if input.state == (InputState::Kept { is_member }) && input.stamp != known {
            input.stamp = known;
            input.is_touched = true;
        }
        self.inputs.insert(key(&item.id), input);
        Ok(matches!(input.state, InputState::Wanted { .. }))
    }

    /// Forgets what containers have shown, because they are read again.
    fn forget_members(&mut self) {
        self.inputs.retain(|_, input| input.state != InputState::Wanted { is_new: true, is_member: true });
        for input in self.inputs.values_mut() {
            input.state = match input.state {
                InputState::Wanted { is_member: true, .. } if self.update == Update::Failures => InputState::Failed,
                InputState::Wanted { is_member: true, .. }
                | InputState::Kept { is_member: true }
                | InputState::Unreadable { is_member: true } => InputState::Gone,
                state => state,
            };
        }
    }
}

fn twice(id: &str) -> SourceError {
    SourceError::Invalid(format!("two inputs have the id {id}, and an update tells inputs apart by their ids"))
}

/// The inputs of a listing that an update embeds.
pub struct UpdateSource {
    /// Without the files, objects and containers that are as they were.
    listing: Listing,
    known: Arc<Mutex<KnownInputs>>,
    fetch: Box<dyn Fetch>,
    listing_hash: String,
    part: String,
    selection: String,
    /// With containers: the index of the next item, and the number of items to pass over before it.
    counted: Option<(u64, u64)>,
}

impl UpdateSource {
    /// Leaves out what the output has. Files and objects are compared at once, containers' members when they are read,
    /// except for those of a container that is as it was.
    pub fn new(
        mut listing: Listing,
        run: &StoredRun,
        update: Update,
        max_removed: FailurePolicy,
    ) -> Result<Self, RunError> {
        let mut known = KnownInputs::read(run, update, max_removed)?;
        let listing_hash = listing.listing_hash();
        let part = listing.part();
        let fetch = listing.open_fetch()?;
        let mut lookers = Lookers::open(&listing)?;
        let unchanged = match update {
            Update::Changes { by_content: false, .. } => unchanged_containers(&mut known, &mut listing)?,
            _ => BTreeMap::new(),
        };
        let mut selection = Xxh3::new();
        selection.update(format!("{update:?}").as_bytes());
        let listing = listing.select(|inputs| {
            let singles: Vec<&Item> =
                inputs.iter().filter(|(_, is_container)| !is_container).map(|(item, _)| item).collect();
            let stamps = lookers.stamps(&singles);
            let mut unknown = Vec::new();
            let mut hashes = Vec::new();
            for (item, stamp) in singles.iter().zip(&stamps) {
                if let Some(hash) = known.needs_content(item, *stamp) {
                    unknown.push(*item);
                    hashes.push(hash);
                }
            }
            let mut contents = lookers.contents(&unknown, &hashes)?.into_iter();
            let mut stamps = stamps.into_iter();
            let mut wanted = Vec::new();
            for (item, is_container) in inputs {
                if *is_container {
                    let container = unchanged.get(&item.id).copied().unwrap_or_default();
                    if !container.is_same() {
                        known.wanted_sizes.add(Stamp::default());
                        selection.update(format!("{:?} {:?}\n", item.id, item.version).as_bytes());
                    }
                    wanted.push(!container.is_same());
                    continue;
                }
                let stamp = stamps.next().unwrap_or_default();
                let is_same = if known.needs_content(item, stamp).is_some() { contents.next().flatten() } else { None };
                let is_wanted = known.wants(item, stamp, false, |_| Ok(is_same))?;
                if is_wanted {
                    known.wanted_sizes.add(stamp);
                    selection.update(format!("{:?}\n", item.id).as_bytes());
                }
                wanted.push(is_wanted);
            }
            Ok::<_, RunError>(wanted)
        })?;
        let counted = listing.extent().end.is_none().then_some((0, 0));
        let selection = format!("{:016x}", selection.digest());
        Ok(Self { listing, known: Arc::new(Mutex::new(known)), fetch, listing_hash, part, selection, counted })
    }

    /// A digest of the items that are embedded, as far as they are known before containers are read. An interrupted
    /// update continues by number, so that it must be of the same items.
    pub fn selection(&self) -> &str {
        &self.selection
    }

    /// The comparison with the output's inputs. Of containers that were not read yet, it knows nothing.
    pub fn known(&self) -> Arc<Mutex<KnownInputs>> {
        Arc::clone(&self.known)
    }

    fn lock(&self) -> MutexGuard<'_, KnownInputs> {
        lock(&self.known)
    }
}

/// A container, and whether the output's inputs from there have its stamp.
#[derive(Clone, Copy, Default)]
struct Container {
    stamp: Stamp,
    members: u64,
    others: u64,
}

impl Container {
    fn is_same(&self) -> bool {
        self.members > 0 && self.others == 0
    }
}

/// Finds the containers whose members were all read and have their container's stamp, and keeps their members.
fn unchanged_containers(
    known: &mut KnownInputs,
    listing: &mut Listing,
) -> Result<BTreeMap<String, Container>, RunError> {
    let mut containers = BTreeMap::new();
    listing.each_input(&mut |item, is_container| {
        if is_container {
            let stamp = stamp_of_version(&item.version);
            containers.insert(item.id, Container { stamp, ..Container::default() });
        }
    })?;
    if containers.is_empty() {
        return Ok(containers);
    }
    for keep in [false, true] {
        for record in known.recorded()? {
            let InputRecord { id, stamp, xxh3, .. } = record?;
            // The failure of a damaged container is recorded by its own id.
            if let Some(container) = containers.get(&id) {
                if let Some(input) = known.inputs.get_mut(&key(&id)).filter(|_| keep) {
                    let is_same = container.is_same();
                    input.state = if is_same { InputState::Kept { is_member: false } } else { InputState::Gone };
                    input.is_container = !is_same;
                }
                continue;
            }
            let folders = id.match_indices('/').map(|(at, _)| &id[..at]);
            let Some(name) = folders.into_iter().find(|folder| containers.contains_key(*folder)) else { continue };
            let Some(container) = containers.get_mut(name) else { continue };
            match known.inputs.get_mut(&key(&id)) {
                Some(input) if keep && container.is_same() => {
                    input.state = InputState::Kept { is_member: false };
                    input.compared_by = Some(ComparedBy::of(stamp, container.stamp));
                }
                _ if keep => {}
                _ if stamp.is_same(&container.stamp) && xxh3.is_some() => container.members += 1,
                _ => container.others += 1,
            }
        }
    }
    Ok(containers)
}

impl Source for UpdateSource {
    fn next_item(&mut self) -> Result<Option<Item>, SourceError> {
        match self.counted {
            None => self.listing.next_item(),
            Some(_) => Ok(self.deliver()?.map(|delivery| delivery.item)),
        }
    }

    fn deliver(&mut self) -> Result<Option<Delivery>, SourceError> {
        let Some((mut next, mut skip)) = self.counted else { return self.listing.deliver() };
        while let Some(mut delivery) = self.listing.deliver()? {
            let Delivery { item, content } = &mut delivery;
            let found = self.lock().inputs.get(&key(&item.id)).map(|input| input.state);
            let is_listed = matches!(found, Some(InputState::Wanted { is_member: false, .. }));
            if !is_listed {
                let fetch = self.fetch.as_mut();
                let stamp = stamp_of(fetch, item);
                let wants = lock(&self.known).wants(item, stamp, true, |hash| match content {
                    Content::Read(bytes) => Ok(Some(hash.is_of(bytes))),
                    Content::Failed(_) => Ok(None),
                    Content::Unread => {
                        let mut bytes = Vec::new();
                        Ok(fetch.fetch(item, &mut bytes).ok().map(|()| hash.is_of(&bytes)))
                    }
                });
                if !wants.map_err(|error| SourceError::Invalid(error.to_string()))? {
                    continue;
                }
            }
            if skip > 0 {
                skip -= 1;
                continue;
            }
            item.index = next;
            next += 1;
            self.counted = Some((next, 0));
            return Ok(Some(delivery));
        }
        Ok(None)
    }

    fn extent(&self) -> Extent {
        self.listing.extent()
    }

    fn seek(&mut self, index: u64, after: u64) -> Result<(), SourceError> {
        if self.counted.is_none() {
            return self.listing.seek(index, after);
        }
        self.lock().forget_members();
        self.counted = Some((index, index));
        self.listing.rewind()
    }

    fn listing_hash(&self) -> String {
        self.listing_hash.clone()
    }

    fn part(&self) -> String {
        self.part.clone()
    }

    fn columns(&self) -> &[String] {
        self.listing.columns()
    }

    fn open_fetch(&self) -> Result<Box<dyn Fetch>, SourceError> {
        self.listing.open_fetch()
    }
}
