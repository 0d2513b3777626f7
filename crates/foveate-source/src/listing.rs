use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::id::id_of;
use crate::list::{is_standard_input, open_list};
use crate::lister::{Lister, ListingStats};
use crate::pattern::{Pattern, has_wildcard};
use crate::roots::{ListedFetch, Roots};
use crate::spool::{Record, Spool};
use crate::{Fetch, FileFetch, Item, ListReader, Separator, Source, SourceError};

/// The default limit on one file's bytes: 256 MiB.
pub const DEFAULT_MAX_BYTES: u64 = 256 << 20;

/// The default limit on a listing's snapshot: 4 GB, which is 50 million paths of 72 bytes.
pub const DEFAULT_MAX_LISTING: u64 = 4_000_000_000;

/// A command-line argument that stands for images.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A file, a folder (searched for images, recursively), or a pattern: a path that does not exist and contains one
    /// of `*?[{`.
    ///
    /// Patterns: `*` and `?` match within a name, `**` any number of folders, `[a-z]` one character, `{jpg,png}` one of
    /// several. Hidden names match only if the pattern has the dot. Matched folders are searched for images.
    Path(PathBuf),
    /// A file of paths; `-` is standard input. There is no quoting, no comments and no patterns. Every entry is an
    /// input that is checked only when it is read.
    List(PathBuf, Separator),
}

impl Input {
    /// Checks that this input exists, without listing it. A listing turns a missing path into one failed item; a
    /// program calls this first for a path that a user typed.
    ///
    /// # Errors
    /// If the path does not exist, a folder or a list cannot be opened, or a pattern is invalid. Only listing finds a
    /// pattern that matches nothing.
    pub fn check(&self) -> Result<(), SourceError> {
        match self {
            Self::Path(path) => check_path(path),
            Self::List(path, _) if is_standard_input(path) => Ok(()),
            Self::List(path, _) => check_list(path),
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

/// A pipe is not opened, because it can be read only once.
fn check_list(path: &Path) -> Result<(), SourceError> {
    match fs::metadata(path) {
        Ok(data) if data.is_dir() => Err(SourceError::Invalid(format!("the list {} is a folder", path.display()))),
        Ok(data) if !data.is_file() => Ok(()),
        _ => open_list(path).map(drop),
    }
}

/// Files, folders, patterns and lists as one source: a snapshot taken when it is built.
///
/// Items follow the order of the inputs, and within a folder or pattern the byte order of path components. Symbolic
/// links are followed. Folders contribute neither names that begin with a dot nor files without an image's extension
/// ([`IMAGE_EXTENSIONS`](crate::IMAGE_EXTENSIONS)); [`stats`](Self::stats) counts both. A path that occurs twice is two
/// items.
///
/// An unreadable input is an [`Item::fault`] in its place: a missing path, an unreadable folder, a broken symbolic
/// link, a link back to a folder above it, a pattern that matches nothing.
///
/// If a folder that was searched is gone later, reading its items is [`FetchError::FolderGone`](crate::FetchError): the
/// files are not at fault.
///
/// **Memory.** A few MiB for any number of items: a larger snapshot goes to an unnamed temporary file (in `TMPDIR`).
/// That file has a limit ([`ListingBuilder::max_listing`]), so that an endless list does not fill the disk.
/// With a snapshot the count and the digest are known, any position can be reached, and later changes to the folders do
/// not change a running job's order. While listing, only the names of the folders on the way down are held in memory.
pub struct Listing {
    spool: Spool,
    stats: ListingStats,
    roots: Arc<Roots>,
    range: Range<u64>,
    max_bytes: u64,
    record: Record,
}

impl Listing {
    /// Starts a listing with no inputs.
    pub fn builder<'a>() -> ListingBuilder<'a> {
        ListingBuilder {
            inputs: Vec::new(),
            max_bytes: DEFAULT_MAX_BYTES,
            max_listing: DEFAULT_MAX_LISTING,
            limit: None,
            shard: None,
            progress: None,
        }
    }

    /// Number of items in the whole listing, regardless of this shard or limit.
    pub fn total(&self) -> u64 {
        self.spool.records()
    }

    /// Counts from listing.
    pub fn stats(&self) -> &ListingStats {
        &self.stats
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
        let files = FileFetch::new(self.max_bytes);
        Ok(Box::new(ListedFetch { files, roots: Arc::clone(&self.roots) }))
    }
}

/// Builds a [`Listing`]. The order of the calls does not matter, except that of the inputs.
pub struct ListingBuilder<'a> {
    inputs: Vec<Input>,
    max_bytes: u64,
    max_listing: u64,
    limit: Option<u64>,
    shard: Option<(u32, u32)>,
    progress: Option<Box<dyn FnMut(u64) + 'a>>,
}

impl<'a> ListingBuilder<'a> {
    /// Adds inputs after the existing ones.
    pub fn inputs(mut self, inputs: impl IntoIterator<Item = Input>) -> Self {
        self.inputs.extend(inputs);
        self
    }

    /// Refuses each file of more bytes than this ([`FetchError::TooLarge`](crate::FetchError::TooLarge)).
    pub fn max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Refuses a listing whose snapshot takes more bytes than this: 8 per item and those of its path
    /// ([`SourceError::TooLarge`]).
    pub fn max_listing(mut self, bytes: u64) -> Self {
        self.max_listing = bytes;
        self
    }

    /// Keeps only the first `limit` items. Shards divide the limited listing.
    pub fn limit(mut self, limit: u64) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Keeps only part `index` (from 0) of `count` contiguous parts: items `[index * n / count, (index + 1) * n /
    /// count)` of `n`. Their indexes stay those of the whole listing.
    pub fn shard(mut self, index: u32, count: u32) -> Self {
        self.shard = Some((index, count));
        self
    }

    /// Calls `progress` with the number of items found so far, from time to time while listing and once at the end.
    pub fn progress(mut self, progress: impl FnMut(u64) + 'a) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Lists the inputs. Only an error of the whole listing is returned (an unreadable list, no room for the snapshot,
    /// a shard that does not exist); an error of a single input becomes that item's fault.
    pub fn build(mut self) -> Result<Listing, SourceError> {
        if let Some((index, count)) = self.shard.filter(|(index, count)| index >= count) {
            return Err(SourceError::Invalid(format!("there is no shard {index} of {count} (they count from 0)")));
        }
        let progress = self.progress.as_mut().map(|progress| progress.as_mut() as &mut dyn FnMut(u64));
        let mut lister = Lister::new(self.max_listing, progress);
        for input in &self.inputs {
            match input {
                Input::Path(path) => lister.path(path)?,
                Input::List(path, separator) => lister.list(ListReader::open(path, *separator)?)?,
            }
        }
        let (spool, stats, roots) = lister.finish()?;
        let range = part(spool.records().min(self.limit.unwrap_or(u64::MAX)), self.shard.unwrap_or((0, 1)));
        let (max_bytes, roots) = (self.max_bytes, Arc::new(roots));
        let mut listing = Listing { spool, stats, roots, range, max_bytes, record: Record::default() };
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
