//! The conformance suite: the behaviour required of every source, for backends' tests.

use crate::container::{ContainerBackend, ContainerOptions, Member, MemberContent, MemberName};
use crate::{Content, Delivery, Fetch, FetchError, Item, Source, Version, blob::Blob};
use std::sync::Arc;

/// Runs every check on sources made by `open`. Each must list the same items, at least one of them readable, and have
/// no shard or limit.
///
/// # Panics
/// If a source does not conform; the message says how.
pub fn check(open: impl Fn() -> Box<dyn Source>) {
    let items = enumerate(open().as_mut());
    indexes_are_the_extent(open().as_ref(), &items);
    enumerating_again_gives_the_same(&open, &items);
    the_end_stays_the_end(open().as_mut());
    seeking_gives_the_rest(open().as_mut(), &items);
    seeking_changes_nothing_else(open().as_mut());
    reading_is_repeatable(&open, &items);
    if open().deliver().expect("there is a first item").is_some_and(|first| matches!(first.content, Content::Unread)) {
        fetching_replaces(open().as_ref(), &items);
        a_failed_fetch_leaves_nothing(open().as_ref(), &items);
    }
}

/// Checks that `shards`, in order, are the parts of `whole`.
///
/// # Panics
/// If they are not; the message says how.
pub fn check_shards(whole: &mut dyn Source, shards: Vec<Box<dyn Source>>) {
    let is_known = whole.extent().end.is_some();
    let mut rest = enumerate(whole).into_iter();
    let mut next = whole.extent().start;
    for (number, mut shard) in shards.into_iter().enumerate() {
        let items = enumerate(shard.as_mut());
        let start = shard.extent().start;
        assert_eq!(start, if is_known { next } else { 0 }, "shard {number} does not begin where it should");
        next += items.len() as u64;
        assert_eq!(shard.listing_hash(), whole.listing_hash(), "the hash is the whole listing's");
        indexes_are_the_extent(shard.as_ref(), &items);
        seeking_gives_the_rest(shard.as_mut(), &items);
        let expected: Vec<Item> = rest.by_ref().take(items.len()).collect();
        if is_known {
            assert_eq!(items, expected, "shard {number}");
        } else {
            let [items, expected] = [items, expected].map(|mut items| {
                items.iter_mut().for_each(|item| item.index = 0);
                items
            });
            assert_eq!(items, expected, "shard {number}");
        }
    }
    assert_eq!(rest.next(), None, "the shards leave something out");
}

/// Returns all remaining items of a source.
pub fn enumerate(source: &mut dyn Source) -> Vec<Item> {
    std::iter::from_fn(|| source.next_item().unwrap_or_else(|error| panic!("enumerating: {error}"))).collect()
}

/// Reads all remaining items of a source, each with its bytes or the reason why there are none.
pub fn read(source: &mut dyn Source) -> Vec<(Item, Result<Vec<u8>, String>)> {
    let mut fetch = open_fetch(source);
    let mut all = Vec::new();
    while let Some(Delivery { item, content }) = source.deliver().unwrap_or_else(|error| panic!("delivering: {error}"))
    {
        let mut bytes = Vec::new();
        let read = match &item.fault {
            Some(fault) => Err(fault.clone()),
            None => content.read_into(&item, fetch.as_mut(), &mut bytes).map_err(|error| error.to_string()),
        };
        all.push((item, read.map(|()| bytes)));
    }
    all
}

fn indexes_are_the_extent(source: &dyn Source, items: &[Item]) {
    let indexes: Vec<u64> = items.iter().map(|item| item.index).collect();
    let extent = source.extent();
    let end = extent.end.unwrap_or(extent.start + items.len() as u64);
    assert_eq!(indexes, (extent.start..end).collect::<Vec<_>>(), "indexes are the extent's, in order");
}

fn enumerating_again_gives_the_same(open: &impl Fn() -> Box<dyn Source>, items: &[Item]) {
    let mut again = open();
    assert_eq!(enumerate(again.as_mut()), items, "a second enumeration");
    let hash = again.listing_hash();
    assert_eq!(hash, open().listing_hash(), "the hash of the same listing");
    assert!(!hash.is_empty() && hash.bytes().all(|digit| digit.is_ascii_hexdigit() && !digit.is_ascii_uppercase()));
}

fn the_end_stays_the_end(source: &mut dyn Source) {
    enumerate(source);
    for _ in 0..3 {
        assert_eq!(source.next_item().expect("the end is no error"), None);
    }
}

fn seeking_gives_the_rest(source: &mut dyn Source, items: &[Item]) {
    let start = source.extent().start;
    let end = start + items.len() as u64;
    let places = [end, start, start + (end - start) / 2, end.saturating_sub(1), start + 1, 0];
    for index in places.into_iter().chain(source.extent().end.map(|end| [end + 1, u64::MAX]).into_iter().flatten()) {
        let before = items.iter().take_while(|item| item.index < index).last();
        let expected: Vec<Item> = items.iter().filter(|item| item.index >= index).cloned().collect();
        for after in [before.map_or(0, |item| item.place), 0] {
            source.seek(index, after).unwrap_or_else(|error| panic!("seeking {index}: {error}"));
            assert_eq!(enumerate(source), expected, "after seeking {index} at {after}");
        }
    }
}

fn seeking_changes_nothing_else(source: &mut dyn Source) {
    let before = (source.extent(), source.listing_hash(), source.part());
    enumerate(source);
    source.rewind().expect("the start can be sought");
    assert_eq!((source.extent(), source.listing_hash(), source.part()), before, "extent, hash and part after seeking");
}

fn reading_is_repeatable(open: &impl Fn() -> Box<dyn Source>, items: &[Item]) {
    let first = read(open().as_mut());
    let second = read(open().as_mut());
    assert!(first == second, "two readings, two results");
    assert_eq!(first.len(), items.len(), "the items that are delivered are those that are enumerated");
    for ((read, _), listed) in first.iter().zip(items) {
        // The answer with the bytes may say more of them than the listing.
        let known = listed.version.clone().or(read.version.clone());
        assert_eq!(
            read,
            &Item { version: known, ..listed.clone() },
            "the item that is delivered is the enumerated one"
        );
    }
    assert!(first.iter().any(|(_, bytes)| bytes.is_ok()), "no item can be read: nothing was checked");
}

fn fetching_replaces(source: &dyn Source, items: &[Item]) {
    let mut fetch = open_fetch(source);
    let mut out = Vec::new();
    for item in items {
        out.clear();
        out.extend_from_slice(b"left over from another item");
        match fetch.fetch(item, &mut out) {
            Ok(()) => assert!(!out.starts_with(b"left over"), "{item}: bytes are appended, not replaced"),
            Err(error) => empty_after(item, &error, &out),
        }
    }
}

fn a_failed_fetch_leaves_nothing(source: &dyn Source, items: &[Item]) {
    let mut fetch = open_fetch(source);
    let mut item = items[0].clone();
    item.locator = b"no such thing\0 anywhere".to_vec();
    let mut out = b"left over".to_vec();
    let error = fetch.fetch(&item, &mut out).expect_err("there is no such item");
    empty_after(&item, &error, &out);
    assert!(!error.to_string().is_empty());
}

fn empty_after(item: &Item, error: &FetchError, out: &[u8]) {
    assert!(out.is_empty(), "{item}: {} bytes are left after: {error}", out.len());
}

fn open_fetch(source: &dyn Source) -> Box<dyn Fetch> {
    source.open_fetch().unwrap_or_else(|error| panic!("opening a reader: {error}"))
}

/// The members of a container after its first `skip` outcomes, and the error that ends them. As in a listing, an error
/// that comes before is one of those to skip.
///
/// # Panics
/// If a member has not a value for every column, no name or too many bytes, or comes after the end.
pub fn outcomes(
    format: &ContainerBackend,
    blob: Arc<dyn Blob>,
    options: &ContainerOptions,
    skip: u64,
) -> (Vec<Member>, Option<FetchError>) {
    let opened = format.open(blob, options).and_then(|mut members| members.skip(skip).map(|()| members));
    let mut members = match opened {
        Ok(members) => members,
        Err(error) => return (Vec::new(), Some(error).filter(|_| skip == 0)),
    };
    let mut found = Vec::new();
    let end = loop {
        match members.next() {
            Ok(Some(member)) => found.push(checked(member, options)),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(!matches!(members.next(), Ok(Some(_))), "the end stays the end");
    (found, end)
}

fn checked(member: Member, options: &ContainerOptions) -> Member {
    assert_eq!(member.columns.len(), options.columns.len(), "a member has a value for every column");
    assert_ne!(member.name, MemberName::Key(Vec::new()), "a member has a name");
    if let MemberContent::Here(bytes) = &member.content {
        assert!(bytes.len() as u64 <= options.max_bytes, "a member of {} bytes", bytes.len());
    }
    member
}

/// Checks a container format on a sound container of several members: reading it twice gives the same, and skipping
/// any number of members gives the rest.
///
/// # Panics
/// If the format does not conform; the message says how.
pub fn check_container(format: &ContainerBackend, blob: impl Fn() -> Arc<dyn Blob>, options: &ContainerOptions) {
    let all = sound_members(format, blob(), options, 0);
    assert!(all.len() > 1, "a container of several members is needed");
    for skip in 0..all.len() + 3 {
        let rest = sound_members(format, blob(), options, skip as u64);
        assert!(rest == all[skip.min(all.len())..], "after skipping {skip} of {}", all.len());
    }
}

/// A member that can be compared with another one.
#[derive(PartialEq)]
struct SeenMember {
    name: MemberName,
    content: Result<bytes::Bytes, String>,
    version: Version,
    columns: Box<[Option<String>]>,
}

/// The members of a sound container after the first `skip`.
fn sound_members(
    format: &ContainerBackend,
    blob: Arc<dyn Blob>,
    options: &ContainerOptions,
    skip: u64,
) -> Vec<SeenMember> {
    let (members, end) = outcomes(format, blob, options, skip);
    assert!(end.is_none(), "reading after skipping {skip}: {end:?}");
    let mut seen = Vec::new();
    for Member { name, content, version, columns } in members {
        let content = match content {
            MemberContent::Here(bytes) => Ok(bytes),
            MemberContent::At(locator) => Ok(locator.into()),
            MemberContent::Failed(error) => Err(error.to_string()),
        };
        seen.push(SeenMember { name, content, version, columns });
    }
    seen
}
