//! Inputs that changed since an earlier run recorded them.

use std::collections::{HashMap, HashSet};

use foveate_core::FaultScope;
use foveate_sink::{
    Difference, Failure, InputRecord, Likeness, OtherRun, RecordedHash, RecordedInputs, RunState, SinkError, Stamp,
};
use foveate_source::store::scheme_of;
use foveate_source::{Delivery, Item, Source};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::RunError;
use crate::lookers::{Lookers, stamp_of_version};

/// The ids of a larger listing are not compared: that would take memory for all of them.
const MOST_COMPARED: u64 = 1 << 20;

/// Ids named in a message; the others are counted.
const MOST_NAMED: usize = 3;

/// Adds to a sink's refusal what only the source knows. An output is not complete for this job if an input changed, and
/// a listing that differs is named input by input.
pub(crate) fn explain(error: SinkError, source: &mut dyn Source, by_content: bool) -> Result<SinkError, RunError> {
    match error {
        SinkError::AlreadyComplete(done) => {
            let changed = done.inputs.as_ref().map(|recorded| changed(recorded, source, by_content)).transpose()?;
            let Some(inputs) = changed.flatten() else { return Ok(SinkError::AlreadyComplete(done)) };
            let difference = Difference { settings: Vec::new(), inputs: Some(inputs) };
            let (path, state) = (done.path, RunState::Complete);
            Ok(SinkError::OtherRun(Box::new(OtherRun { path, state, difference, inputs: done.inputs })))
        }
        SinkError::OtherRun(mut other) => {
            if let (Some(words), Some(recorded)) = (&mut other.difference.inputs, &other.inputs)
                && let Some(named) = listed_otherwise(recorded, source)?
            {
                *words = named;
            }
            Ok(SinkError::OtherRun(other))
        }
        error => Ok(error),
    }
}

/// Checks that the `count` last items of a source, none of which could be read, are at fault and not their storage: an
/// earlier item of the same kind of storage can be read. They are to be read once more then. `first` is the failure of
/// the first of them.
///
/// # Errors
/// [`RunError::Unreadable`] if none can, or the error of a storage that is gone.
pub fn check_storage(source: &mut dyn Source, count: u64, first: &Failure) -> Result<(), RunError> {
    match can_be_read(source, first.index, &first.id)? {
        true => Ok(()),
        false => Err(RunError::Unreadable { count, first: Box::new(first.clone()) }),
    }
}

/// Returns true if an item before item `end` can be read, of the same kind of storage as the item with the id `like`.
/// Only the first items are tried.
fn can_be_read(source: &mut dyn Source, end: u64, like: &str) -> Result<bool, RunError> {
    const MOST_TRIED: usize = 100;
    let mut fetch = source.open_fetch()?;
    let mut tried = 0;
    let mut bytes = Vec::new();
    source.rewind()?;
    while let Some(Delivery { item, content }) = source.deliver()?.filter(|next| next.item.index < end) {
        if item.fault.is_some() || scheme_of(item.id.as_bytes()) != scheme_of(like.as_bytes()) {
            continue;
        }
        match content.read_into(&item, fetch.as_mut(), &mut bytes) {
            Ok(()) => return Ok(true),
            Err(error) if error.scope() == FaultScope::Run => return Err(error.into()),
            Err(_) if tried == MOST_TRIED => break,
            Err(_) => tried += 1,
        }
    }
    Ok(false)
}

/// Names the inputs whose file is another one than when it was recorded; `None` if there are none.
fn changed(recorded: &RecordedInputs, source: &mut dyn Source, by_content: bool) -> Result<Option<String>, RunError> {
    if source.extent().end.is_none() && !by_content && !has_rows_elsewhere(recorded, source)? {
        return changed_beside_containers(recorded, source);
    }
    let mut lookers = Lookers::open(source)?;
    let mut changed = Names::default();
    let mut fetch = source.open_fetch()?;
    let mut bytes = Vec::new();
    // After an update, the order of the record is not that of the listing.
    let mut by_id = HashMap::new();
    if !has_order(recorded, source)? {
        for record in recorded.read()? {
            let record = record?;
            by_id.insert(xxh3_128(record.id.as_bytes()), (record.stamp, record.hash()));
        }
    }
    source.rewind()?;
    let mut records = recorded.read()?;
    let mut is_over = false;
    while !is_over {
        let mut pairs: Vec<(Item, RecordedInput)> = Vec::new();
        while pairs.len() < LOOKED_AT_ONCE {
            let next = if by_content { source.deliver()? } else { source.next_item()?.map(Delivery::unread) };
            let Some(Delivery { item, content }) = next else {
                is_over = true;
                break;
            };
            let record = match by_id.get(&xxh3_128(item.id.as_bytes())) {
                Some(&known) => known,
                None => match records.next().transpose()? {
                    Some(record) => (record.stamp, record.hash()),
                    None => {
                        is_over = true;
                        break;
                    }
                },
            };
            if by_content && item.fault.is_none() {
                let is_same = match content.read_into(&item, fetch.as_mut(), &mut bytes) {
                    Ok(()) => record.1.is_some_and(|hash| hash.is_of(&bytes)),
                    Err(_) => record.1.is_none(),
                };
                if !is_same {
                    changed.add(item.id);
                }
                continue;
            }
            pairs.push((item, record));
        }
        for ((item, _), is_same) in pairs.iter().zip(are_same(&pairs, &mut lookers)?) {
            if !is_same {
                changed.add(item.id.clone());
            }
        }
    }
    Ok(changed.describe("changed"))
}

/// Inputs that are compared with their records at once.
const LOOKED_AT_ONCE: usize = 1024;

/// A record's stamp of an input, and the hash of its content if it could be read.
type RecordedInput = (Stamp, Option<RecordedHash>);

/// Tells of each input whether it is the one of its record. It is read if nothing else tells. A record without a hash
/// is of an input that could not be read: it has no vector that could be a wrong one.
fn are_same(pairs: &[(Item, RecordedInput)], lookers: &mut Lookers) -> Result<Vec<bool>, RunError> {
    let items: Vec<&Item> = pairs.iter().map(|(item, _)| item).collect();
    let mut same = Vec::new();
    let mut unknown = Vec::new();
    let mut hashes = Vec::new();
    let mut places = Vec::new();
    for (at, (now, (item, (stamp, hash)))) in lookers.stamps(&items).iter().zip(pairs).enumerate() {
        let likeness = stamp.compare(now);
        same.push(match likeness {
            _ if item.fault.is_some() => hash.is_none(),
            Likeness::SameTag | Likeness::SameTime => true,
            Likeness::Other => false,
            Likeness::Unknown => hash.is_none(),
        });
        if let Some(hash) = hash.filter(|_| likeness == Likeness::Unknown && item.fault.is_none()) {
            unknown.push(item);
            hashes.push(hash);
            places.push(at);
        }
    }
    for (at, is_same) in places.into_iter().zip(lookers.contents(&unknown, &hashes)?) {
        same[at] = is_same == Some(true);
    }
    Ok(same)
}

/// Returns true if some rows of containers named their images: these are not in the containers, so that only asking
/// for each tells whether they changed. What is in a container was recorded with the container's stamp.
fn has_rows_elsewhere(recorded: &RecordedInputs, source: &mut dyn Source) -> Result<bool, RunError> {
    let mut containers = HashSet::new();
    let mut others = HashSet::new();
    source.each_input(&mut |item, is_container| {
        if is_container {
            let stamp = stamp_of_version(&item.version);
            // Earlier versions recorded no tags.
            containers.extend([stamp, Stamp { etag: None, ..stamp }]);
        } else {
            others.insert(xxh3_128(item.id.as_bytes()));
        }
    })?;
    // Standard input cannot be read twice, and its members have stamps of their own.
    if containers.contains(&Stamp::default()) {
        return Ok(false);
    }
    for record in recorded.read()? {
        let InputRecord { id, stamp, xxh3, .. } = record?;
        if xxh3.is_some() && !containers.contains(&stamp) && !others.contains(&xxh3_128(id.as_bytes())) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Names the changed files and objects of a listing with containers. These are in the listing's hash with their lengths
/// and times, so their members, whose ids only reading them tells, are not compared.
fn changed_beside_containers(recorded: &RecordedInputs, source: &mut dyn Source) -> Result<Option<String>, RunError> {
    let mut lookers = Lookers::open(source)?;
    let mut listed: HashMap<u128, ListedInput> = HashMap::new();
    let mut items = Vec::new();
    source.each_input(&mut |item, is_container| {
        if !is_container {
            items.push(item);
        }
        if items.len() == LOOKED_AT_ONCE {
            ListedInput::note(&mut items, &mut lookers, &mut listed);
        }
    })?;
    ListedInput::note(&mut items, &mut lookers, &mut listed);
    // A member may have a file's id, so an input is the same if one of its records says so.
    let mut unknown = Vec::new();
    for record in recorded.read()? {
        let record = record?;
        let id = xxh3_128(record.id.as_bytes());
        let Some(input) = listed.get(&id) else { continue };
        let is_failure = record.hash().is_none();
        match (record.stamp.compare(&input.stamp), &input.item) {
            (Likeness::Unknown, Some(item)) if !is_failure => {
                unknown.push((item.clone(), (record.stamp, record.hash())));
            }
            (Likeness::Unknown, _) if !is_failure => {}
            (Likeness::Other, _) => {}
            _ => drop(listed.remove(&id)),
        }
    }
    for pairs in unknown.chunks(LOOKED_AT_ONCE) {
        for ((item, _), is_same) in pairs.iter().zip(are_same(pairs, &mut lookers)?) {
            if is_same {
                listed.remove(&xxh3_128(item.id.as_bytes()));
            }
        }
    }
    let mut changed = Names::default();
    for record in recorded.read()? {
        let InputRecord { id, .. } = record?;
        if listed.remove(&xxh3_128(id.as_bytes())).is_some() {
            changed.add(id);
        }
    }
    Ok(changed.describe("changed"))
}

/// An input that is no container, as it is now.
struct ListedInput {
    stamp: Stamp,
    /// The item, if its stamp may not be enough. Files have a time, so that there are few.
    item: Option<Item>,
}

impl ListedInput {
    fn note(items: &mut Vec<Item>, lookers: &mut Lookers, listed: &mut HashMap<u128, Self>) {
        let stamps = lookers.stamps(&items.iter().collect::<Vec<_>>());
        for (item, stamp) in items.drain(..).zip(stamps) {
            let is_kept = stamp.modified_ns.is_none() || scheme_of(&item.locator).is_some();
            listed.insert(xxh3_128(item.id.as_bytes()), Self { stamp, item: is_kept.then_some(item) });
        }
    }
}

/// Returns true if the record begins as the listing does, id by id.
fn has_order(recorded: &RecordedInputs, source: &mut dyn Source) -> Result<bool, RunError> {
    source.rewind()?;
    for record in recorded.read()? {
        let record = record?;
        if source.next_item()?.is_none_or(|item| item.id != record.id) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Numbers of an id's occurrences.
#[derive(Default)]
struct IdCounts {
    listed: u32,
    recorded: u32,
}

/// Names the inputs that were added or removed since they were recorded; `None` if these alone do not tell the listings
/// apart.
fn listed_otherwise(recorded: &RecordedInputs, source: &mut dyn Source) -> Result<Option<String>, RunError> {
    if source.extent().count().is_none_or(|count| count > MOST_COMPARED) {
        return Ok(None);
    }
    let mut counts: HashMap<u64, IdCounts> = HashMap::new();
    source.rewind()?;
    while let Some(item) = source.next_item()? {
        counts.entry(xxh3_64(item.id.as_bytes())).or_default().listed += 1;
    }
    let mut added = Names::default();
    let mut removed = Names::default();
    let mut kept = 0_u64;
    for record in recorded.read()? {
        let InputRecord { id, .. } = record?;
        match counts.get_mut(&xxh3_64(id.as_bytes())) {
            Some(count) if count.recorded < count.listed => {
                count.recorded += 1;
                kept += 1;
            }
            _ => removed.add(id),
        }
    }
    source.rewind()?;
    // Of an interrupted run, what follows the last recorded input is not known.
    while let Some(item) = source.next_item()?.filter(|_| recorded.is_complete() || kept > 0) {
        match counts.get_mut(&xxh3_64(item.id.as_bytes())) {
            Some(count) if count.recorded > 0 => {
                count.recorded -= 1;
                kept -= 1;
            }
            _ => added.add(item.id),
        }
    }
    let named: Vec<String> = added.describe("added").into_iter().chain(removed.describe("removed")).collect();
    Ok((!named.is_empty()).then(|| named.join(", ")))
}

/// Ids for a message.
#[derive(Default)]
struct Names {
    first: Vec<String>,
    count: usize,
}

impl Names {
    fn add(&mut self, id: String) {
        self.count += 1;
        if self.first.len() < MOST_NAMED {
            self.first.push(id);
        }
    }

    fn describe(&self, what: &str) -> Option<String> {
        let names = self.first.join(", ");
        match self.count {
            0 => None,
            1 => Some(format!("1 photo {what}: {names}")),
            count if count > MOST_NAMED => {
                Some(format!("{count} photos {what}: {names} and {} more", count - MOST_NAMED))
            }
            count => Some(format!("{count} photos {what}: {names}")),
        }
    }
}
