use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::addressed::Addressed;
use crate::container::{ContainerOptions, ContainerRegistry};
use crate::id::id_of;
use crate::identity::NamedFile;
use crate::input::Input;
use crate::kept;
use crate::lister::{InputLister, ListedRecords, ListingStats};
use crate::roots::{ListedFetch, Roots};
use crate::spool::{Record, Spool, SpoolWriter};
use crate::store::{StoreOptions, StoreRegistry};
use crate::stream::{self, Reach, RecordKind, RecordStream};
use crate::{DEFAULT_MAX_BYTES, Delivery, Extent, Fetch, FileFetch, Item, Source, SourceError};

/// Inputs that are chosen or left out at once, so that stores are asked for many of them side by side.
const SELECTED_AT_ONCE: usize = 1024;

/// The default limit on a listing's snapshot: 4 GB, which is 50 million paths of 72 bytes.
pub const DEFAULT_MAX_LISTING: u64 = 4_000_000_000;

/// Files, folders, patterns and lists as one source: a snapshot taken when it is built.
///
/// With [`containers`](ListingBuilder::containers), a file with the name of a container stands for its members, which
/// are found while the job reads them: then the [extent](Source::extent) has no known end, shards divide the files and
/// not the members, and each shard's indexes count from 0. With [`stores`](ListingBuilder::stores), inputs may be
/// addresses.
///
/// Items follow the order of the inputs, and within a folder or pattern the byte order of path components. Symbolic
/// links are followed. Folders contribute neither names that begin with a dot nor files without an image's extension
/// ([`IMAGE_EXTENSIONS`](crate::IMAGE_EXTENSIONS)); [`stats`](Self::stats) counts both. A path that occurs twice is two
/// items.
///
/// An unreadable input is an [`Item::fault`] in its place: a missing path, a broken symbolic link, a link back to a
/// folder above it, a pattern that matches nothing. A folder that cannot be read ends the listing, unless
/// [`accept_unreadable_folders`](ListingBuilder::accept_unreadable_folders) says otherwise.
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
    /// The records of this part.
    range: Range<u64>,
    max_bytes: u64,
    reach: Arc<Reach>,
    stream: RecordStream,
    /// The objects that rows name. They are asked for in another order than those of the stream.
    rows: Addressed,
    /// With containers: the next item's index, and the most items. Otherwise, indexes are the records' numbers.
    counted: Option<(u64, u64)>,
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
            kept: None,
            accepts_unreadable: false,
            reach: Reach::default(),
            progress: None,
        }
    }

    /// Number of files and objects in the whole listing, regardless of this shard or limit.
    pub fn total(&self) -> u64 {
        self.spool.records()
    }

    /// Counts from listing.
    pub fn stats(&self) -> &ListingStats {
        &self.stats
    }

    /// Reads what other deliveries name by addresses, from this listing's stores.
    pub fn addressed(&self) -> Addressed {
        Addressed::new(Arc::clone(&self.reach))
    }

    /// Returns true if the snapshot is in a temporary file.
    pub fn is_on_disk(&self) -> bool {
        self.spool.is_on_disk()
    }
}

impl std::fmt::Debug for Listing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listing").field("range", &self.range).field("stats", &self.stats).finish_non_exhaustive()
    }
}

impl Listing {
    /// Leaves out the files, objects and containers for which `wants` says false. It gets some of them at a time, with
    /// whether they are containers. The others count from 0.
    ///
    /// # Errors
    /// Fails if `wants` does, or the snapshot cannot be read or written.
    pub fn select<E: From<SourceError>>(
        mut self,
        mut wants: impl FnMut(&[(Item, bool)]) -> Result<Vec<bool>, E>,
    ) -> Result<Self, E> {
        let mut chosen = SpoolWriter::new(u64::MAX);
        let mut containers = 0;
        self.spool.seek(self.range.start)?;
        loop {
            let mut records = Vec::new();
            let mut items = Vec::new();
            let mut record = Record::default();
            while records.len() < SELECTED_AT_ONCE
                && self.spool.position() < self.range.end
                && self.spool.read(&mut record)?.is_some()
            {
                let item = record.clone().into_item(0, 0);
                let is_container = self.is_container(&item);
                items.push((item, is_container));
                records.push(record.clone());
            }
            if items.is_empty() {
                break;
            }
            for ((record, (_, is_container)), is_wanted) in records.iter().zip(&items).zip(wants(&items)?) {
                if is_wanted {
                    chosen.push(&record.path, &record.fault, &record.version)?;
                    containers += u64::from(*is_container);
                }
            }
        }
        self.spool = chosen.finish()?;
        self.range = 0..self.spool.records();
        self.counted = (containers > 0).then_some((0, u64::MAX));
        self.rewind()?;
        Ok(self)
    }

    /// The file of an item of this listing, as it is now.
    pub fn file_of(&self, item: &Item) -> Option<NamedFile> {
        match self.reach.kind(&item.locator) {
            RecordKind::Object(_) => Some(NamedFile::object(&id_of(&item.locator))),
            RecordKind::File => NamedFile::at(&FileFetch::path(item)),
            RecordKind::Container(_) => {
                let container = id_of(&item.locator);
                let rest = item.id.strip_prefix(&container).and_then(|rest| rest.strip_prefix('/'));
                let member = rest.map_or_else(|| stream::after(item.place).1.to_string(), str::to_owned);
                Some(NamedFile::of_id(&container)?.member(member))
            }
        }
    }

    fn is_container(&self, item: &Item) -> bool {
        item.fault.is_none() && matches!(self.reach.kind(&item.locator), RecordKind::Container(_))
    }

    /// The next file, object or container of this part, unread.
    fn next_record(&mut self) -> Result<Option<Item>, SourceError> {
        if self.spool.position() >= self.range.end {
            return Ok(None);
        }
        let mut record = Record::default();
        let number = self.spool.read(&mut record)?;
        Ok(number.map(|number| record.into_item(number, 0)))
    }

    /// Continues with the first record from `record` on that has a member after its first `skip`.
    fn continue_at(&mut self, record: u64, skip: u64) -> Result<(), SourceError> {
        self.stream = RecordStream::new(Arc::clone(&self.reach), skip);
        self.rows = self.addressed();
        self.spool.seek(record.max(self.range.start))
    }

    /// The next item. The objects of rows are read if `reads` says so.
    fn delivered(&mut self, reads: bool) -> Result<Option<Delivery>, SourceError> {
        let left = self.counted.map_or(u64::MAX, |(next, most)| most.saturating_sub(next));
        if left == 0 {
            return Ok(None);
        }
        let Self { stream, spool, range, rows, .. } = self;
        let most = if reads { left } else { 0 };
        let delivery = rows.deliver(most, &mut || stream.deliver(spool, range.end))?;
        let Some(mut delivery) = delivery else { return Ok(None) };
        let item = &mut delivery.item;
        match &mut self.counted {
            Some((next, _)) => item.index = std::mem::replace(next, *next + 1),
            None => (item.index, item.place) = (stream::after(item.place).0, 0),
        }
        Ok(Some(delivery))
    }
}

impl Source for Listing {
    fn next_item(&mut self) -> Result<Option<Item>, SourceError> {
        if self.counted.is_none() && self.stream.is_idle() && self.rows.is_empty() {
            self.next_record()
        } else {
            Ok(self.delivered(false)?.map(|delivery| delivery.item))
        }
    }

    fn deliver(&mut self) -> Result<Option<Delivery>, SourceError> {
        if self.reach.is_files() { Ok(self.next_record()?.map(Delivery::unread)) } else { self.delivered(true) }
    }

    fn extent(&self) -> Extent {
        match self.counted {
            None => self.range.clone().into(),
            Some((_, most)) if most == 0 || self.range.is_empty() => (0..0).into(),
            Some(_) => Extent { start: 0, end: None },
        }
    }

    fn seek(&mut self, index: u64, after: u64) -> Result<(), SourceError> {
        let Some((next, _)) = &mut self.counted else { return self.continue_at(index, 0) };
        if index > 0 && after > 0 {
            *next = index;
            let (record, members) = stream::after(after);
            return self.continue_at(record, members);
        }
        *next = 0;
        self.continue_at(self.range.start, 0)?;
        // The place is that of the first member, or unknown.
        while self.counted.is_some_and(|(next, _)| next < index) && self.delivered(false)?.is_some() {}
        Ok(())
    }

    fn listing_hash(&self) -> String {
        self.spool.hash().to_owned()
    }

    fn part(&self) -> String {
        let Range { start, end } = self.range;
        match self.counted {
            None => format!("{start}..{end}"),
            Some((_, u64::MAX)) => format!("all of files {start}..{end}"),
            Some((_, most)) => format!("the first {most} of files {start}..{end}"),
        }
    }

    fn each_input(&mut self, each: &mut dyn FnMut(Item, bool)) -> Result<(), SourceError> {
        self.continue_at(self.range.start, 0)?;
        while let Some(item) = self.next_record()? {
            let is_container = self.is_container(&item);
            each(item, is_container);
        }
        self.rewind()
    }

    fn columns(&self) -> &[String] {
        &self.reach.options.columns
    }

    fn open_fetch(&self) -> Result<Box<dyn Fetch>, SourceError> {
        let files = FileFetch::new(self.max_bytes);
        Ok(Box::new(ListedFetch::new(files, Arc::clone(&self.roots), Arc::clone(&self.reach))))
    }
}

/// Builds a [`Listing`]. The order of the calls does not matter, except that of the inputs.
pub struct ListingBuilder<'a> {
    inputs: Vec<Input>,
    max_bytes: u64,
    max_listing: u64,
    limit: Option<u64>,
    shard: Option<(u32, u32)>,
    kept: Option<PathBuf>,
    accepts_unreadable: bool,
    reach: Reach,
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

    /// Refuses a listing whose snapshot takes more bytes than this: 12 per item and those of its path
    /// ([`SourceError::TooLarge`]).
    pub fn max_listing(mut self, bytes: u64) -> Self {
        self.max_listing = bytes;
        self
    }

    /// Keeps only the first `limit` items. Shards divide the limited listing. With containers, whose items are not
    /// known beforehand, each shard keeps the first of its own items, as many as its share of the limit.
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

    /// Keeps the listing in a file. If the file is there, it is read instead of the inputs: the listing is as old as
    /// the file, and its [counts](ListingStats) of skipped files are zero. Of several processes that make it at a time,
    /// one does, and the others read it.
    pub fn kept(mut self, file: impl Into<PathBuf>) -> Self {
        self.kept = Some(file.into());
        self
    }

    /// Makes a folder that cannot be read one faulty item. Otherwise it ends the listing, because it hides any number
    /// of images.
    pub fn accept_unreadable_folders(mut self) -> Self {
        self.accepts_unreadable = true;
        self
    }

    /// Takes files with the names of these formats for containers of images.
    pub fn containers(mut self, formats: Arc<ContainerRegistry>, options: ContainerOptions) -> Self {
        (self.reach.containers, self.reach.options) = (Some(formats), options);
        self
    }

    /// Takes inputs with these stores' schemes for addresses.
    pub fn stores(mut self, stores: Arc<StoreRegistry>, options: StoreOptions) -> Self {
        (self.reach.stores, self.reach.store_options) = (Some(stores), options);
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
        let reach = Arc::new(self.reach);
        let subject = kept::subject(&self.inputs, &reach.options.names);
        let kept = self.kept.as_deref();
        let listed = loop {
            let progress = self.progress.as_mut().map(|progress| progress.as_mut() as &mut dyn FnMut(u64));
            let mut lister = InputLister::new(self.max_listing, Arc::clone(&reach), progress);
            lister.accepts_unreadable = self.accepts_unreadable;
            let is_read = kept.map_or(Ok(false), |file| kept::read(file, &subject, &mut lister))?;
            if !is_read {
                lister.inputs(&self.inputs)?;
            }
            let mut listed = lister.finish()?;
            match kept {
                // If another process wrote the file first, that listing counts.
                Some(file) if !is_read && !kept::write(file, &subject, &mut listed)? => {}
                _ => break listed,
            }
        };
        let ListedRecords { spool, stats, roots, containers } = listed;
        let (index, count) = self.shard.unwrap_or((0, 1));
        let mut counted = None;
        let mut records = spool.records();
        if containers > 0 {
            // The images before a shard's containers are not known, so each shard takes its share of the limit.
            let share = self.limit.map(|limit| part(limit, index, count));
            counted = Some((0, share.map_or(u64::MAX, |share| share.end - share.start)));
        } else if let Some(limit) = self.limit {
            records = records.min(limit);
        }
        let range = part(records, index, count);
        let max_bytes = self.max_bytes;
        let roots = Arc::new(roots);
        let stream = RecordStream::new(Arc::clone(&reach), 0);
        let rows = Addressed::new(Arc::clone(&reach));
        let mut listing = Listing { spool, stats, roots, range, max_bytes, reach, stream, rows, counted };
        listing.rewind()?;
        Ok(listing)
    }
}

/// Part `index` of `count` of the numbers below `items`.
fn part(items: u64, index: u32, count: u32) -> Range<u64> {
    // At most `items`, so it fits again.
    let [start, end] = [0, 1].map(|one| ((u128::from(index) + one) * u128::from(items) / u128::from(count)) as u64);
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_contiguous_and_even() {
        for items in [0, 1, 2, 7, 100, u64::MAX] {
            for count in [1, 2, 3, 7, 64] {
                let parts: Vec<_> = (0..count).map(|index| part(items, index, count)).collect();
                assert_eq!(parts[0].start, 0);
                assert_eq!(parts[count as usize - 1].end, items);
                assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
                let lengths = parts.iter().map(|part| part.end - part.start);
                assert!(lengths.clone().max().unwrap() - lengths.min().unwrap() <= 1);
            }
        }
    }
}
