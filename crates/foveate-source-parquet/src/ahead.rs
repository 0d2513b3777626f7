//! Reading a store's file ahead: several requests at a time, in the order of the row groups.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use foveate_core::panic_message;
use foveate_source::FetchError;
use foveate_source::blob::Blob;

/// Bytes of one request. Larger ones are hardly faster.
const WINDOW: u64 = 8 << 20;

/// Requests under way.
const REQUESTS: usize = 8;

/// Bytes that are under way or wait for the reader, as [`PartWindow::weight`] counts them.
const MOST: u64 = 64 << 20;

/// Neighbouring columns of a row group that are not larger than this together are one request.
const SMALL: u64 = 1 << 20;

/// Reads a file's columns ahead.
pub(crate) struct RowGroupsAhead {
    blob: Arc<dyn Blob>,
    /// The parts of each row group; each is read from its start to its end, all of them in step.
    groups: Vec<Vec<Range<u64>>>,
    /// The first row group of which nothing was asked for.
    next: usize,
    /// The parts of the row groups before that, unless they are done.
    parts: VecDeque<GroupPart>,
}

struct GroupPart {
    group: usize,
    range: Range<u64>,
    /// The start of the bytes that were not asked for.
    unasked: u64,
    windows: VecDeque<PartWindow>,
}

/// Bytes that were asked for.
struct PartWindow {
    range: Range<u64>,
    content: WindowContent,
}

enum WindowContent {
    Coming(io::Result<JoinHandle<Result<Bytes, FetchError>>>),
    Here(Bytes),
}

impl RowGroupsAhead {
    /// Reads `blob`, in whose row groups these columns are needed.
    pub(crate) fn new(blob: Arc<dyn Blob>, groups: impl Iterator<Item = Vec<Range<u64>>>) -> Self {
        Self { blob, groups: groups.map(join_small).collect(), next: 0, parts: VecDeque::new() }
    }

    /// Turns to row group `group`. Those before it are not needed any more.
    pub(crate) fn begin(&mut self, group: usize) {
        if group > self.next {
            self.restart(group);
        }
        self.parts.retain(|part| part.group >= group);
        self.ask();
    }

    /// Forgets everything, to go to row group `group`.
    pub(crate) fn restart(&mut self, group: usize) {
        self.parts.clear();
        self.next = group;
    }

    /// The `len` bytes from `start` on; `None` if they are in none of the parts, or were passed.
    pub(crate) fn read(&mut self, start: u64, len: u64) -> Option<Result<Bytes, FetchError>> {
        let range = start..start.checked_add(len)?;
        // Parts overlap a little. The later one is meant.
        let parts = self.parts.iter_mut().filter(|part| part.range.contains(&start));
        let part = parts.max_by_key(|part| part.range.start).filter(|part| range.end <= part.range.end)?;
        part.pass(start);
        while part.unasked < range.end {
            part.ask(&self.blob);
        }
        part.windows.front().filter(|first| first.range.start <= start)?;
        let bytes = part.read(&range);
        self.ask();
        Some(bytes)
    }

    /// Asks for as much as may be under way. First comes the part of which the least was asked for.
    fn ask(&mut self) {
        while self.has_room() {
            let unasked = self.parts.iter_mut().filter(|part| part.unasked < part.range.end);
            match unasked.min_by_key(|part| (part.group, part.thousandths())) {
                Some(part) => part.ask(&self.blob),
                None if self.next < self.groups.len() => self.add_group(),
                None => return,
            }
        }
    }

    fn has_room(&self) -> bool {
        let windows = self.parts.iter().flat_map(|part| &part.windows);
        windows.clone().filter(|window| window.is_coming()).count() < REQUESTS
            && windows.map(PartWindow::weight).sum::<u64>() < MOST
    }

    fn add_group(&mut self) {
        let group = self.next;
        for range in &self.groups[group] {
            let unasked = range.start;
            self.parts.push_back(GroupPart { group, range: range.clone(), unasked, windows: VecDeque::new() });
        }
        self.next += 1;
    }
}

impl GroupPart {
    /// The share of it that was asked for.
    fn thousandths(&self) -> u64 {
        let len = self.range.end - self.range.start;
        (self.unasked - self.range.start).saturating_mul(1000) / len.max(1)
    }

    /// Asks for the next window.
    fn ask(&mut self, blob: &Arc<dyn Blob>) {
        let range = self.unasked..self.range.end.min(self.unasked + WINDOW);
        self.unasked = range.end;
        self.windows.push_back(PartWindow { content: WindowContent::ask(blob, range.clone()), range });
    }

    /// Lets the windows before `start` go. What is small has one window, in which several columns are read in turn.
    fn pass(&mut self, start: u64) {
        while self.windows.front().is_some_and(|first| first.range.end <= start) {
            self.windows.pop_front();
        }
        if self.windows.is_empty() {
            self.unasked = self.unasked.max(start);
        }
    }

    /// Returns bytes that the windows have. After an error they have nothing more.
    fn read(&mut self, range: &Range<u64>) -> Result<Bytes, FetchError> {
        let windows = self.windows.iter_mut().take_while(|window| window.range.start < range.end);
        let pieces = windows.map(|window| window.slice(range)).collect::<Result<Vec<_>, _>>();
        match pieces {
            Ok(mut pieces) if pieces.len() == 1 => Ok(pieces.swap_remove(0)),
            Ok(pieces) => Ok(pieces.concat().into()),
            Err(error) => {
                self.windows.clear();
                self.unasked = self.range.end;
                Err(error)
            }
        }
    }
}

impl PartWindow {
    /// Its memory, with a share for everything but its bytes.
    fn weight(&self) -> u64 {
        const BESIDE: u64 = 64 << 10;
        self.range.end - self.range.start + BESIDE
    }

    fn is_coming(&self) -> bool {
        matches!(&self.content, WindowContent::Coming(Ok(reading)) if !reading.is_finished())
    }

    /// Waits for those of its bytes that are in `range`.
    fn slice(&mut self, range: &Range<u64>) -> Result<Bytes, FetchError> {
        let bytes = self.content.get()?;
        let from = range.start.max(self.range.start) - self.range.start;
        let to = range.end.min(self.range.end) - self.range.start;
        Ok(bytes.slice(from as usize..to as usize))
    }
}

impl WindowContent {
    fn ask(blob: &Arc<dyn Blob>, range: Range<u64>) -> Self {
        let blob = Arc::clone(blob);
        let thread = thread::Builder::new().name("read ahead".to_owned());
        Self::Coming(thread.spawn(move || read(blob.as_ref(), range)))
    }

    /// Waits for the bytes.
    fn get(&mut self) -> Result<Bytes, FetchError> {
        let bytes = match mem::replace(self, Self::Here(Bytes::new())) {
            Self::Here(bytes) => bytes,
            Self::Coming(reading) => match reading?.join() {
                Ok(read) => read?,
                Err(panic) => return Err(FetchError::Unreachable(panic_message(panic.as_ref()))),
            },
        };
        *self = Self::Here(bytes.clone());
        Ok(bytes)
    }
}

/// Reads the bytes of `range`, which is within the blob.
pub(crate) fn read(blob: &dyn Blob, range: Range<u64>) -> Result<Bytes, FetchError> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    blob.read_at(range.start, &mut bytes)?;
    Ok(bytes.into())
}

/// Puts small neighbours together.
fn join_small(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| range.start < range.end);
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.end.max(last.end) - last.start <= SMALL => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}
