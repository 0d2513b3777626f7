use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::id::id_of;
use crate::lister::{Lister, ListingStats, open_list};
use crate::pattern::{Pattern, has_wildcard};
use crate::spool::{Record, Spool};
use crate::{Fetch, FileFetch, Item, Source, SourceError};

/// The limit on one file's bytes when none is set: 256 MiB.
pub const DEFAULT_MAX_BYTES: u64 = 256 << 20;

/// Something on the command line that stands for images.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A file, a folder (searched for images, recursively), or, when no such path exists and it has one of `*?[{`, a
    /// pattern.
    ///
    /// Patterns: `*` and `?` match within a name, `**` any number of folders, `[a-z]` one character, `{jpg,png}` one
    /// of several. Hidden names match only where the pattern has the dot. Folders that match are searched for images.
    Path(PathBuf),
    /// A file with one path a line (`\n` or `\r\n`; empty lines are skipped; no quoting, no comments, no patterns, any
    /// bytes); `-` is standard input. Every line is an input, looked at only when it is read.
    List(PathBuf),
}

impl Input {
    /// Checks that there is something of this name, without listing it. A listing makes a missing path one failed item;
    /// a program that was given the path by a person asks here first.
    ///
    /// # Errors
    /// When the path does not exist, a folder or a list cannot be opened, or a pattern cannot be understood. A pattern that
    /// matches nothing is found by listing only.
    pub fn check(&self) -> Result<(), SourceError> {
        match self {
            Self::Path(path) => check_path(path),
            Self::List(path) if is_standard_input(path) => Ok(()),
            Self::List(path) => check_list(path),
        }
    }
}

fn check_path(path: &Path) -> Result<(), SourceError> {
    let unreadable = |source| SourceError::Io { action: format!("read {}", path.display()), source };
    match (fs::metadata(path), path.to_str().filter(|text| has_wildcard(text))) {
        (Ok(data), _) if data.is_dir() => fs::read_dir(path).map(drop).map_err(unreadable),
        (Ok(_), _) => Ok(()),
        (Err(_), Some(text)) => {
            Pattern::new(text).map(drop).map_err(|reason| SourceError::Invalid(format!("{text}: {reason}")))
        }
        (Err(error), None) => Err(unreadable(error)),
    }
}

/// A pipe is not opened: it can be read only once.
fn check_list(path: &Path) -> Result<(), SourceError> {
    match fs::metadata(path) {
        Ok(data) if data.is_dir() => Err(SourceError::Invalid(format!("the list {} is a folder", path.display()))),
        Ok(data) if !data.is_file() => Ok(()),
        _ => open_list(path).map(drop),
    }
}

fn is_standard_input(list: &Path) -> bool {
    list.as_os_str() == "-"
}

/// Files, folders, patterns and lists as one source: a snapshot taken when it is built.
///
/// The order is that of the inputs; within a folder or pattern that of the path components' bytes. Symbolic links are
/// followed. Names that begin with a dot are left out of folders, and so are files without an image's extension
/// ([`IMAGE_EXTENSIONS`](crate::IMAGE_EXTENSIONS)); [`stats`](Self::stats) counts both. A path that occurs twice is
/// two items.
///
/// What cannot be read is an [`Item::fault`] in its place: a missing path, an unreadable folder, a broken symbolic
/// link, one that leads back to a folder above it, a pattern that matches nothing.
///
/// **Memory.** Some MiB whatever the number of items: the snapshot goes to an unnamed temporary file (in `TMPDIR`)
/// beyond that, so that the count and the digest are known, any place can be reached, and nothing that happens to the
/// folders changes the order of a running job. Only the names of the folders on the way down are held while listing.
pub struct Listing {
    spool: Spool,
    stats: ListingStats,
    range: Range<u64>,
    max_bytes: u64,
    record: Record,
}

impl Listing {
    /// Starts a listing with no inputs.
    pub fn builder<'a>() -> ListingBuilder<'a> {
        ListingBuilder { inputs: Vec::new(), max_bytes: DEFAULT_MAX_BYTES, limit: None, shard: None, progress: None }
    }

    /// How many items the whole listing has, outside of this shard or limit too.
    pub fn total(&self) -> u64 {
        self.spool.records()
    }

    /// What listing saw.
    pub fn stats(&self) -> ListingStats {
        self.stats
    }

    /// Whether the snapshot is in a temporary file.
    pub fn is_on_disk(&self) -> bool {
        self.spool.is_on_disk()
    }
}

impl std::fmt::Debug for Listing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listing").field("range", &self.range).field("stats", &self.stats).finish_non_exhaustive()
    }
}

impl Source for Listing {
    fn next_item(&mut self) -> Result<Option<Item>, SourceError> {
        if self.spool.position() >= self.range.end {
            return Ok(None);
        }
        let Some(index) = self.spool.read(&mut self.record)? else { return Ok(None) };
        let fault = std::mem::take(&mut self.record.fault);
        Ok(Some(Item {
            index,
            id: id_of(&self.record.path),
            locator: std::mem::take(&mut self.record.path),
            fault: (!fault.is_empty()).then_some(fault),
        }))
    }

    fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    fn seek(&mut self, index: u64) -> Result<(), SourceError> {
        self.spool.seek(index.max(self.range.start))
    }

    fn listing_hash(&self) -> String {
        self.spool.hash().to_owned()
    }

    fn open_fetch(&self) -> Result<Box<dyn Fetch>, SourceError> {
        Ok(Box::new(FileFetch::new(self.max_bytes)))
    }
}

/// Collects what a [`Listing`] is made of. The order of the calls other than the inputs' does not matter.
pub struct ListingBuilder<'a> {
    inputs: Vec<Input>,
    max_bytes: u64,
    limit: Option<u64>,
    shard: Option<(u32, u32)>,
    progress: Option<Box<dyn FnMut(u64) + 'a>>,
}

impl<'a> ListingBuilder<'a> {
    /// Adds inputs after those already there.
    pub fn inputs(mut self, inputs: impl IntoIterator<Item = Input>) -> Self {
        self.inputs.extend(inputs);
        self
    }

    /// Refuses files of more bytes than this, each on its own ([`FetchError::TooLarge`](crate::FetchError::TooLarge)).
    pub fn max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Keeps only the first `limit` items. Shards divide what a limit leaves.
    pub fn limit(mut self, limit: u64) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Keeps only part `index` (from 0) of `count` contiguous parts: items `[index * n / count, (index + 1) * n / count)`
    /// of `n`. Their indexes stay those of the whole listing.
    pub fn shard(mut self, index: u32, count: u32) -> Self {
        self.shard = Some((index, count));
        self
    }

    /// Calls `progress` with the number of items found so far, now and then while listing and once at the end.
    pub fn progress(mut self, progress: impl FnMut(u64) + 'a) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Lists. An error is one of the listing as a whole (a list that cannot be read, no room for the snapshot, a shard
    /// that does not exist); what is wrong with a single input becomes that item's fault.
    pub fn build(mut self) -> Result<Listing, SourceError> {
        if let Some((index, count)) = self.shard.filter(|(index, count)| index >= count) {
            return Err(SourceError::Invalid(format!("there is no shard {index} of {count} (they count from 0)")));
        }
        let mut lister = Lister::new(self.progress.as_mut().map(|progress| progress.as_mut() as &mut dyn FnMut(u64)));
        for input in &self.inputs {
            match input {
                Input::Path(path) => lister.path(path)?,
                Input::List(path) if is_standard_input(path) => {
                    lister.list("standard input", std::io::stdin().lock())?;
                }
                Input::List(path) => lister.list(&path.display().to_string(), open_list(path)?)?,
            }
        }
        let (spool, stats) = lister.finish()?;
        let range = part(spool.records().min(self.limit.unwrap_or(u64::MAX)), self.shard.unwrap_or((0, 1)));
        let mut listing = Listing { spool, stats, range, max_bytes: self.max_bytes, record: Record::default() };
        listing.seek(0)?;
        Ok(listing)
    }
}

/// Part `index` of `count` of the numbers below `items`.
fn part(items: u64, (index, count): (u32, u32)) -> Range<u64> {
    // At most `items`, so it fits again.
    let edge = |index: u64| (u128::from(index) * u128::from(items) / u128::from(count)) as u64;
    edge(u64::from(index))..edge(u64::from(index) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_contiguous_and_even() {
        for items in [0, 1, 2, 7, 100, u64::MAX] {
            for count in [1, 2, 3, 7, 64] {
                let parts: Vec<_> = (0..count).map(|index| part(items, (index, count))).collect();
                assert_eq!(parts[0].start, 0);
                assert_eq!(parts[count as usize - 1].end, items);
                assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
                let lengths = parts.iter().map(|part| part.end - part.start);
                assert!(lengths.clone().max().unwrap() - lengths.min().unwrap() <= 1);
            }
        }
    }
}
