//! Lists the objects below a prefix in the order of their keys.
//!
//! A store gives 1000 keys at a time and each page names the next, so a long listing waits for one answer after the
//! other. Here several ranges of keys are listed at the same time, for keys of any form: an idle lister looks for a key
//! within a range that another is listing, and takes the keys after it. Objects that are found too early wait in a
//! temporary file.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Bound;

use foveate_source::store::{Object, Version};
use foveate_source::{FetchError, SourceError};
use futures_util::future::try_join_all;
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use tempfile::SpooledTempFile;
use tokio::sync::Notify;

use crate::address::{BucketPlace, StoreKind, shown};
use crate::core::Core;
use crate::errors::ReadFailure;
use crate::keys;
use crate::read::version;

/// Ranges that are listed at a time.
const SIDE_BY_SIDE: usize = 8;

/// Pages of a range before it may be divided, so that short listings take no more requests than pages.
const WHOLE_PAGES: u32 = 4;

/// Most searches for a place to divide a range, each closer to the last key.
const MOST_ROUNDS: usize = 16;

/// Most keys come before this character.
const LAST_ASCII: char = '~';

/// Bytes of waiting objects that stay in memory.
const MEMORY_BYTES: usize = 4 << 20;

/// A range's name: the key after which it begins, and a number that no other one has.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct KeyRange {
    after: String,
    number: u64,
}

/// The state of a range's listing.
#[derive(Default)]
struct RangeState {
    /// The last key listed; at first, the one after which the range begins.
    last: Option<String>,
    /// The last key that belongs to it, if it has an end.
    until: Option<String>,
    /// The first key listed.
    first: Option<String>,
    /// The next page.
    token: Option<String>,
    /// Pages listed since it began or was divided.
    pages: u32,
    /// The places of its objects in the file: offsets and lengths.
    waiting: Vec<(u64, usize)>,
    is_whole: bool,
    is_being_divided: bool,
}

/// The state that all requests of a listing share.
struct ListState<'a> {
    /// In the order of keys. The first one's objects are given away at once.
    spans: BTreeMap<KeyRange, RangeState>,
    /// Ranges begun.
    begun: u64,
    each: &'a mut dyn FnMut(Object) -> Result<(), SourceError>,
    file: SpooledTempFile,
    can_divide: bool,
}

/// The next thing to do.
enum NextStep {
    Begin,
    Divide(KeyRange),
    Wait,
    End,
}

impl ListState<'_> {
    fn next(&mut self) -> NextStep {
        if self.begun == 0 {
            self.begun = 1;
            self.spans.insert(KeyRange::default(), RangeState::default());
            return NextStep::Begin;
        }
        let open = self.spans.iter().filter(|(_, span)| !span.is_whole);
        if !self.can_divide || open.clone().next().is_none() {
            return NextStep::End;
        }
        let divisible = open.filter(|(_, span)| !span.is_being_divided && span.pages >= WHOLE_PAGES);
        match divisible.max_by_key(|(_, span)| span.pages) {
            Some((range, _)) => NextStep::Divide(range.clone()),
            None => NextStep::Wait,
        }
    }

    /// A range, if it is not whole.
    fn open(&mut self, range: &KeyRange) -> Option<&mut RangeState> {
        self.spans.get_mut(range).filter(|span| !span.is_whole)
    }

    /// The last key listed of a range that is not whole, and its end.
    fn ends(&mut self, range: &KeyRange) -> Option<(String, Option<String>)> {
        let span = self.open(range)?;
        Some((span.last.clone()?, span.until.clone()))
    }

    /// Makes the keys after `middle` another range, unless listing has come past it.
    fn divide(&mut self, range: &KeyRange, middle: String) -> Option<KeyRange> {
        let span = self.open(range).filter(|span| span.last.as_ref().is_none_or(|last| *last < middle))?;
        let until = span.until.replace(middle.clone());
        let rest = RangeState { last: Some(middle.clone()), until, ..RangeState::default() };
        let second = KeyRange { after: middle, number: self.begun };
        self.begun += 1;
        self.spans.insert(second.clone(), rest);
        Some(second)
    }

    /// Takes a page of a range.
    fn take(&mut self, range: &KeyRange, page: PaginatedListResult, place: &BucketPlace) -> Result<(), SourceError> {
        let is_first = self.spans.first_key_value().is_some_and(|(first, _)| first == range);
        // It may have been taken back.
        let Some(mut span) = self.spans.remove(range) else { return Ok(()) };
        let mut early = Vec::new();
        for meta in page.result.objects {
            let key = keys::key(&meta.location);
            if self.is_beyond(&mut span, range, &key) {
                span.is_whole = true;
                break;
            }
            let address = place.sibling(&key);
            if span.last.as_ref().is_some_and(|last| last.as_str() >= key.as_ref()) {
                return Err(SourceError::Invalid(disorder(&address)));
            }
            // An empty object whose key ends in a slash is a folder's placeholder.
            if meta.size > 0 || !key.ends_with('/') {
                let object = Object { address, version: version(&meta) };
                if is_first { (self.each)(object)? } else { write(&object, &mut early) }
            }
            let key = key.into_owned();
            span.first.get_or_insert_with(|| key.clone());
            span.last = Some(key);
        }
        if !early.is_empty() {
            let at = self.file.seek(SeekFrom::End(0)).map_err(file_error)?;
            self.file.write_all(&early).map_err(file_error)?;
            span.waiting.push((at, early.len()));
        }
        span.pages += 1;
        match page.page_token.filter(|next| !next.is_empty()) {
            None => span.is_whole = true,
            next if next == span.token => return Err(SourceError::Invalid(disorder(&place.sibling(&place.key)))),
            next => span.token = next,
        }
        self.spans.insert(range.clone(), span);
        self.give()
    }

    /// Returns true if `key` belongs to the range after `span`. That one has to begin with it, or else it is taken
    /// back: there may be a new object, and a store may read the key after which a range begins in another way.
    fn is_beyond(&mut self, span: &mut RangeState, range: &KeyRange, key: &str) -> bool {
        while span.until.as_ref().is_some_and(|until| until.as_str() < key) {
            let mut after = self.spans.range((Bound::Excluded(range), Bound::Unbounded));
            match after.next().map(|(next, of_next)| (next.clone(), of_next)) {
                Some((_, next)) if next.first.as_deref() == Some(key) => return true,
                Some((range, next)) if range.after.as_str() < key => {
                    self.can_divide &= next.first.is_none() && !next.is_whole;
                    span.until = self.spans.remove(&range).and_then(|next| next.until);
                }
                next => {
                    self.can_divide = false;
                    span.until = next.map(|(range, _)| range.after);
                }
            }
        }
        false
    }

    /// Gives away what does not wait for anything before it.
    fn give(&mut self) -> Result<(), SourceError> {
        while let Some(mut first) = self.spans.first_entry() {
            for (at, len) in std::mem::take(&mut first.get_mut().waiting) {
                let mut early = vec![0; len];
                self.file.seek(SeekFrom::Start(at)).map_err(file_error)?;
                self.file.read_exact(&mut early).map_err(file_error)?;
                let mut rest = early.as_slice();
                while let Some(object) = read(&mut rest) {
                    (self.each)(object)?;
                }
            }
            if !first.get().is_whole {
                break;
            }
            first.remove();
        }
        Ok(())
    }
}

/// Calls `each` for every object below `place`, in the order of keys.
pub(crate) async fn list(
    core: &Core,
    pages: &dyn PaginatedListStore,
    place: &BucketPlace,
    each: &mut dyn FnMut(Object) -> Result<(), SourceError>,
) -> Result<(), SourceError> {
    let state = RefCell::new(ListState {
        spans: BTreeMap::new(),
        each,
        file: SpooledTempFile::new(MEMORY_BYTES),
        begun: 0,
        // Not every kind of account of Azure can begin anywhere.
        can_divide: place.kind != StoreKind::Azure,
    });
    let lister = RangeLister { core, pages, place, state, changed: Notify::new() };
    try_join_all((0..SIDE_BY_SIDE).map(|_| lister.work())).await.map(drop)
}

struct RangeLister<'a> {
    core: &'a Core,
    pages: &'a dyn PaginatedListStore,
    place: &'a BucketPlace,
    state: RefCell<ListState<'a>>,
    /// Told whenever something is done, since there may be something to do.
    changed: Notify,
}

impl RangeLister<'_> {
    async fn work(&self) -> Result<(), SourceError> {
        loop {
            let next = self.state.borrow_mut().next();
            let begun = match next {
                NextStep::Begin => Some(KeyRange::default()),
                NextStep::Divide(range) => self.divide(&range).await?,
                NextStep::Wait => {
                    self.changed.notified().await;
                    None
                }
                NextStep::End => return Ok(()),
            };
            if let Some(range) = begun {
                self.list(&range).await?;
            }
        }
    }

    /// Lists a range to its end.
    async fn list(&self, range: &KeyRange) -> Result<(), SourceError> {
        loop {
            let options = match self.state.borrow_mut().open(range) {
                Some(RangeState { token: Some(token), .. }) => {
                    PaginatedListOptions { page_token: Some(token.clone()), ..Default::default() }
                }
                Some(RangeState { last, .. }) => PaginatedListOptions { offset: last.clone(), ..Default::default() },
                None => return Ok(()),
            };
            let page = self.page(options).await?;
            let taken = self.state.borrow_mut().take(range, page, self.place);
            self.changed.notify_waiters();
            taken?;
        }
    }

    /// Takes the second part of a range that another lists, if one is found.
    async fn divide(&self, range: &KeyRange) -> Result<Option<KeyRange>, SourceError> {
        if let Some(span) = self.state.borrow_mut().open(range) {
            span.is_being_divided = true;
        }
        let found = self.search(range).await;
        if let Some(span) = self.state.borrow_mut().open(range) {
            (span.is_being_divided, span.pages) = (false, 0);
        }
        self.changed.notify_waiters();
        found
    }

    async fn search(&self, range: &KeyRange) -> Result<Option<KeyRange>, SourceError> {
        let mut found = None;
        for _ in 0..MOST_ROUNDS {
            let Some((last, until)) = self.state.borrow_mut().ends(range) else { return Ok(None) };
            let shared = self.shared(&last, until.as_deref());
            let middle = match between(&last[shared..], until.as_ref().map(|until| &until[shared..])) {
                Some(c) if until.is_some() || found.is_some() => format!("{}{c}", &last[..shared]),
                other => match found.take() {
                    Some(middle) => middle,
                    None => {
                        found = self.narrow(range, &last, shared).await?;
                        if found.is_none() && other.is_none() {
                            return Ok(None);
                        }
                        continue;
                    }
                },
            };
            match self.probe(range, &middle).await? {
                ProbeResult::Nothing => {}
                ProbeResult::Useless => return Ok(None),
                ProbeResult::Found => {
                    if let Some(second) = self.state.borrow_mut().divide(range, middle) {
                        return Ok(Some(second));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Brings the end of a range closer: finds the longest beginning that its other keys share with `last`, beyond
    /// `shared` bytes. Returns a text that is after all keys with one character more, and before others.
    async fn narrow(&self, range: &KeyRange, last: &str, shared: usize) -> Result<Option<String>, SourceError> {
        let beginnings: Vec<_> = (shared..last.len()).filter_map(|at| last.get(..at)).collect();
        let mut from = 0;
        let mut to = beginnings.len();
        while from < to {
            let at = (from + to) / 2;
            match self.probe(range, &format!("{}{LAST_ASCII}", beginnings[at])).await? {
                ProbeResult::Nothing => from = at + 1,
                ProbeResult::Found => to = at,
                ProbeResult::Useless => return Ok(None),
            }
        }
        Ok(beginnings.get(to).map(|beginning| format!("{beginning}{LAST_ASCII}")))
    }

    /// Bytes at the beginning of all keys after `last` until `until`.
    fn shared(&self, last: &str, until: Option<&str>) -> usize {
        let Some(until) = until else { return self.place.key.len() };
        let differs = last.char_indices().zip(until.chars()).find(|((_, a), b)| a != b);
        differs.map_or(last.len(), |((at, _), _)| at)
    }

    /// Probes a range for keys after `middle`. It ends there if it has none.
    async fn probe(&self, range: &KeyRange, middle: &str) -> Result<ProbeResult, SourceError> {
        let Some((_, until)) = self.state.borrow_mut().ends(range) else { return Ok(ProbeResult::Useless) };
        if until.is_some_and(|until| until.as_str() <= middle) {
            return Ok(ProbeResult::Nothing);
        }
        let options = PaginatedListOptions { offset: Some(middle.to_owned()), max_keys: Some(1), ..Default::default() };
        let page = self.page(options).await?;
        let first = page.result.objects.first().map(|meta| keys::key(&meta.location));
        let mut state = self.state.borrow_mut();
        if first.as_ref().is_some_and(|key| key.as_ref() <= middle) {
            state.can_divide = false; // this store begins where it likes
            return Ok(ProbeResult::Useless);
        }
        let Some(span) = state.open(range) else { return Ok(ProbeResult::Useless) };
        if let Some(key) = first
            && span.until.as_ref().is_none_or(|until| *key <= **until)
        {
            return Ok(ProbeResult::Found);
        }
        span.until = Some(middle.to_owned());
        Ok(ProbeResult::Nothing)
    }

    /// One page, after retries.
    async fn page(&self, options: PaginatedListOptions) -> Result<PaginatedListResult, SourceError> {
        let name = shown(&self.place.sibling(&self.place.key));
        let mut attempts = self.core.attempts();
        loop {
            let request = self.pages.list_paginated(Some(&self.place.key), options.clone());
            match attempts.answer(&name, self.core.options.timeout, ReadFailure::of, request).await {
                Ok(page) => return Ok(page),
                Err(failure) => attempts
                    .again(failure)
                    .await
                    .map_err(|failure| failed(&self.place.sibling(&self.place.key), failure.into_error(&name)))?,
            }
        }
    }
}

enum ProbeResult {
    Found,
    Nothing,
    /// The range is whole, or the store does not tell.
    Useless,
}

/// A character between those with which two texts begin, if there is one.
fn between(low: &str, high: Option<&str>) -> Option<char> {
    let low = low.chars().next().map_or(u32::from(' ') - 1, u32::from); // keys hardly have control characters
    let high = match high {
        Some(text) => text.chars().next().map_or(0, u32::from),
        None => u32::from(char::MAX) + 1,
    };
    let middle = match u32::from(LAST_ASCII) {
        ascii if low < ascii && high > ascii + 1 => ascii,
        _ => low.midpoint(high),
    };
    char::from_u32(middle).filter(|_| low < middle && middle < high)
}

fn write(object: &Object, out: &mut Vec<u8>) {
    for text in [&object.address, &object.version.to_text()] {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    }
}

fn read(from: &mut &[u8]) -> Option<Object> {
    Some(Object { address: read_text(from)?, version: Version::parse(&read_text(from)?) })
}

fn read_text(from: &mut &[u8]) -> Option<String> {
    let len = u64::from_le_bytes(from.split_off(..8)?.try_into().ok()?);
    Some(String::from_utf8_lossy(from.split_off(..len as usize)?).into_owned())
}

fn file_error(source: std::io::Error) -> SourceError {
    let action = format!("keep the listing in a temporary file under {}", std::env::temp_dir().display());
    SourceError::Io { action, source }
}

pub(crate) fn failed(address: &str, error: FetchError) -> SourceError {
    SourceError::Io { action: format!("list {}", shown(address)), source: error.into() }
}

fn disorder(address: &str) -> String {
    let address = shown(address);
    format!("{address}: the store does not list in the order of keys; list its objects once and name them in a file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_is_between() {
        for (low, high, expected) in [
            ("a.jpg", None, Some('~')),
            ("a.jpg", Some("~"), Some('o')),
            ("0004.jpg", Some("9"), Some('4')),
            ("4zz", Some("5"), None),
            ("~", None, Some('\u{8803f}')),
            ("", Some("a"), Some('@')),
            ("", Some("!"), Some(' ')),
            ("", Some(" "), None),
            ("", Some("語"), Some('~')),
            ("é", Some("語"), Some('䗃')),
            ("\u{d7ff}", Some("\u{e000}"), None),
            ("", Some(""), None),
        ] {
            assert_eq!(between(low, high), expected, "{low} {high:?}");
        }
    }

    #[test]
    fn objects_come_back_from_the_file() {
        let version = Version { len: Some(7), modified: None, tag: Some("\"a b\"".to_owned()) };
        let objects =
            ["s3://b/a", "s3://b/\n ü"].map(|address| Object { address: address.into(), version: version.clone() });
        let mut out = Vec::new();
        objects.iter().for_each(|object| write(object, &mut out));
        let mut rest = out.as_slice();
        assert_eq!(
            [read(&mut rest), read(&mut rest), read(&mut rest)],
            [Some(objects[0].clone()), Some(objects[1].clone()), None]
        );
    }
}
