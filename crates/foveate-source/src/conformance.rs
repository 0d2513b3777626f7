//! The conformance suite: the behaviour required of every source, for backends' tests.

use crate::{Fetch, FetchError, Item, Source};

/// Runs every check on sources made by `open`. Each must list the same items, at least one of them readable, and have
/// no shard or limit.
///
/// # Panics
/// If a source does not conform; the message says how.
pub fn check(open: impl Fn() -> Box<dyn Source>) {
    let items = enumerate(open().as_mut());
    indexes_are_the_range(open().as_ref(), &items);
    enumerating_again_gives_the_same(&open, &items);
    the_end_stays_the_end(open().as_mut());
    seeking_gives_the_rest(open().as_mut(), &items);
    seeking_changes_nothing_else(open().as_mut());
    fetching_replaces(open().as_ref(), &items);
    fetching_is_repeatable(open().as_ref(), &items);
    a_failed_fetch_leaves_nothing(open().as_ref(), &items);
}

/// Checks that `shards`, in order, are the parts of `whole`.
///
/// # Panics
/// If they are not; the message says how.
pub fn check_shards(whole: &mut dyn Source, shards: Vec<Box<dyn Source>>) {
    let mut rest = enumerate(whole).into_iter();
    let mut next = whole.range().start;
    for (number, mut shard) in shards.into_iter().enumerate() {
        let range = shard.range();
        assert_eq!(range.start, next, "shard {number} does not begin where the one before ends");
        next = range.end;
        assert_eq!(shard.listing_hash(), whole.listing_hash(), "the hash is the whole listing's");
        let items = enumerate(shard.as_mut());
        indexes_are_the_range(shard.as_ref(), &items);
        seeking_gives_the_rest(shard.as_mut(), &items);
        let expected: Vec<Item> = rest.by_ref().take(items.len()).collect();
        assert_eq!(items, expected, "shard {number}");
    }
    assert_eq!((next, rest.next()), (whole.range().end, None), "the shards leave something out");
}

/// Returns all remaining items of a source.
pub fn enumerate(source: &mut dyn Source) -> Vec<Item> {
    let next = || source.next_item().unwrap_or_else(|error| panic!("enumerating: {error}"));
    std::iter::from_fn(next).collect()
}

fn indexes_are_the_range(source: &dyn Source, items: &[Item]) {
    let indexes: Vec<u64> = items.iter().map(|item| item.index).collect();
    assert_eq!(indexes, source.range().collect::<Vec<_>>(), "indexes are the range's, in order");
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
    let range = source.range();
    let places = [range.end, range.start, range.start + (range.end - range.start) / 2, range.end.saturating_sub(1), 0];
    for place in places.into_iter().chain([range.end + 1, u64::MAX]) {
        source.seek(place).unwrap_or_else(|error| panic!("seeking {place}: {error}"));
        let expected: Vec<Item> = items.iter().filter(|item| item.index >= place).cloned().collect();
        assert_eq!(enumerate(source), expected, "after seeking {place}");
    }
}

fn seeking_changes_nothing_else(source: &mut dyn Source) {
    let before = (source.range(), source.listing_hash());
    source.seek(before.0.end).expect("the end can be sought");
    assert_eq!((source.range(), source.listing_hash()), before, "range and hash after seeking");
}

fn fetching_replaces(source: &dyn Source, items: &[Item]) {
    let mut fetch = open_fetch(source);
    let mut readable = 0;
    let mut out = Vec::new();
    for item in items {
        out.clear();
        out.extend_from_slice(b"left over from another item");
        match fetch.fetch(item, &mut out) {
            Ok(()) => {
                readable += 1;
                assert!(!out.starts_with(b"left over"), "{item}: bytes are appended, not replaced");
            }
            Err(error) => empty_after(item, &error, &out),
        }
    }
    assert!(readable > 0, "no item can be read: nothing was checked");
}

fn fetching_is_repeatable(source: &dyn Source, items: &[Item]) {
    let (mut one, mut other) = (open_fetch(source), open_fetch(source));
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for item in items.iter().rev() {
        let results = (one.fetch(item, &mut first).is_ok(), other.fetch(item, &mut second).is_ok());
        assert!(results.0 == results.1 && first == second, "{item}: two readers, two results");
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
