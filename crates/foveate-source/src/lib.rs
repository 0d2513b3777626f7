#![doc = include_str!("../README.md")]

mod address;
mod addressed;
mod allowed;
pub mod blob;
mod braces;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod container;
mod fetch;
mod id;
mod identity;
mod input;
mod kept;
mod list;
mod lister;
mod listing;
mod names;
mod pattern;
mod roots;
mod spool;
pub mod store;
mod stream;
mod table_list;
mod text;
mod version;
mod walk;

use std::fmt;

use bytes::Bytes;
use foveate_core::FaultScope;

pub use addressed::Addressed;
pub use allowed::AllowedObjects;
pub use fetch::{DEFAULT_MAX_BYTES, FileFetch};
pub use id::path_of;
pub use identity::{FileIdentity, NamedFile};
pub use input::Input;
pub use list::{ListEntry, ListReader, Separator};
pub use lister::{FOREIGN_EXTENSIONS, IMAGE_EXTENSIONS, ListingStats};
pub use listing::{DEFAULT_MAX_LISTING, Listing, ListingBuilder};
pub use names::{NameFilter, SYSTEM_FOLDERS};
pub use table_list::delimiter_of;
pub use text::text_of;
use version::Version;

/// One input, identified by its position in the source's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Position in the source, from 0; resuming keeps it. Sharding keeps it if the source's extent is known.
    pub index: u64,
    /// The place at which the source finds the item again, in addition to its index; see [`Source::seek`]. 0 if the
    /// index is enough.
    pub place: u64,
    /// The user's name for it, written to the output. For files it is the path as given or found. On Unix, each byte
    /// that is not UTF-8 is written `\xNN` and each backslash is doubled, so that two paths never have one id.
    pub id: String,
    /// Data from which the source's own [`Fetch`] finds the bytes; opaque to all other code.
    pub locator: Vec<u8>,
    /// Set if enumeration already found this input unreadable (an unreadable folder, a symlink loop, a pattern without
    /// a match). Such an input is an item with a failed outcome, not a reason to stop.
    pub fault: Option<String>,
    /// The version of its content, from enumeration or from the answer with its bytes; unknown if only its [`Fetch`]
    /// can tell.
    pub version: Version,
    /// The values of the source's [`columns`](Source::columns), one for each; empty if there are none.
    pub columns: Box<[Option<String>]>,
}

/// Enumerates items in a fixed order. The order is a function of the inputs alone, so that row order, `--shard` and
/// resuming are arithmetic on [`Item::index`].
pub trait Source: Send {
    /// The next item, or `None` at the end. An error is a run fault (the listing itself broke).
    fn next_item(&mut self) -> Result<Option<Item>, SourceError>;

    /// The next item with its content, if the source reads it on the way (a member of a tar); otherwise
    /// [`Content::Unread`]. Either call advances to the next item.
    fn deliver(&mut self) -> Result<Option<Delivery>, SourceError> {
        Ok(self.next_item()?.map(Delivery::unread))
    }

    /// The indexes of the items that this source yields: the whole listing, or the part selected by a shard or a
    /// limit. Indexes count from the start of the *whole* listing if its length is known, so the shards' outputs laid
    /// end to end equal the unsharded output. Otherwise each shard's count from 0. `seek` does not change it.
    fn extent(&self) -> Extent;

    /// Continues with item `index`, the first of [`extent`](Self::extent) if `index` lies before it, or none if `index`
    /// lies at or beyond its end. `after` is the [place](Item::place) of the item before, which a source needs if its
    /// extent is not known; with 0 it counts from its start. Other sources ignore it.
    fn seek(&mut self, index: u64, after: u64) -> Result<(), SourceError>;

    /// Goes back to the first item.
    fn rewind(&mut self) -> Result<(), SourceError> {
        self.seek(self.extent().start, 0)
    }

    /// Calls `each` for every file, object and container that this source yields or whose members it yields, unread,
    /// with whether it is a container, and goes back to the first item. A source whose end is not known shows none
    /// unless it knows them without reading.
    fn each_input(&mut self, each: &mut dyn FnMut(Item, bool)) -> Result<(), SourceError> {
        self.rewind()?;
        if self.extent().end.is_some() {
            while let Some(item) = self.next_item()? {
                each(item, false);
            }
        }
        self.rewind()
    }

    /// A digest of all ids of the *whole* listing in order, as lower-case hex. Equal for all shards of one listing, and
    /// part of a run's fingerprint. A container's members are not in it; its own name, length and version are.
    fn listing_hash(&self) -> String;

    /// The part of the listing that this source yields, in words; part of a run's fingerprint.
    fn part(&self) -> String {
        let Extent { start, end } = self.extent();
        format!("{start}..{}", end.map_or_else(String::new, |end| end.to_string()))
    }

    /// The names of the columns that items carry along.
    fn columns(&self) -> &[String] {
        &[]
    }

    /// A reader of this source's items, one per I/O thread.
    fn open_fetch(&self) -> Result<Box<dyn Fetch>, SourceError>;
}

/// The indexes of a source's items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The first item's.
    pub start: u64,
    /// One past the last item's; `None` if only reading the inputs to their end tells.
    pub end: Option<u64>,
}

impl Extent {
    /// The number of items, if it is known.
    pub fn count(&self) -> Option<u64> {
        self.end.map(|end| end.saturating_sub(self.start))
    }
}

impl From<std::ops::Range<u64>> for Extent {
    fn from(range: std::ops::Range<u64>) -> Self {
        Self { start: range.start, end: Some(range.end) }
    }
}

/// An item on its way to the decoder.
#[derive(Debug)]
pub struct Delivery {
    /// The item.
    pub item: Item,
    /// Its bytes, if the source has read them.
    pub content: Content,
}

impl Delivery {
    /// An item that a [`Fetch`] reads.
    pub fn unread(item: Item) -> Self {
        Self { item, content: Content::Unread }
    }
}

/// The part of an item that a source read.
#[derive(Debug)]
pub enum Content {
    /// Nothing: the source's [`Fetch`] reads it.
    Unread,
    /// Its bytes.
    Read(Bytes),
    /// It could not be read.
    Failed(FetchError),
}

impl Content {
    /// Replaces the content of `out` with the item's bytes: those that the source has read, or else those that `fetch`
    /// reads.
    ///
    /// # Errors
    /// The error that keeps them from being read.
    pub fn read_into(self, item: &Item, fetch: &mut dyn Fetch, out: &mut Vec<u8>) -> Result<(), FetchError> {
        match self {
            Self::Unread => fetch.fetch(item, out),
            Self::Failed(error) => Err(error),
            Self::Read(bytes) => {
                out.clear();
                out.extend_from_slice(&bytes);
                Ok(())
            }
        }
    }
}

/// Gets the bytes of items.
pub trait Fetch: Send {
    /// Replaces the content of `out` with the item's bytes. `out` keeps its memory from item to item and is empty after
    /// an error.
    fn fetch(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError>;

    /// Returns the version of the item's content without reading it, as far as that can be known.
    fn version(&mut self, item: &Item) -> Version;
}

/// The listing broke: a run fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// An operating-system error and the action that failed.
    #[error("cannot {action}")]
    Io {
        /// The action that failed, with the path: "read photos".
        action: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The inputs are invalid.
    #[error("{0}")]
    Invalid(String),
    /// No store has addresses with this scheme.
    #[error("no store for {scheme}:// addresses; {remedy}")]
    NoStore {
        /// The scheme.
        scheme: String,
        /// The alternative that can be read.
        remedy: String,
    },
    /// A list of lines contains NUL.
    #[error("line {line} of {list} contains NUL: its paths end in NUL, or it is UTF-16 without a byte order mark")]
    NulInList {
        /// The list.
        list: String,
        /// The line, from 1.
        line: u64,
    },
    /// A container of inputs can be read no further for now. Its remaining members have no outcome yet.
    #[error("cannot read {container}")]
    Interrupted {
        /// The container.
        container: String,
        /// The cause.
        source: FetchError,
    },
    /// The listing's snapshot would be larger than allowed.
    #[error("the inputs' paths take more than {limit} bytes")]
    TooLarge {
        /// The limit in force.
        limit: u64,
    },
}

/// An item's bytes could not be read. [`scope`](Self::scope) says whether that concerns this item alone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// An operating-system error.
    #[error(transparent)]
    Io(std::io::Error),
    /// Larger than the limit on encoded bytes.
    #[error("{bytes} bytes, more than the limit of {limit} for one file")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit in force.
        limit: u64,
    },
    /// Not something with bytes to read (a directory, a device, a socket).
    #[error("not a regular file ({0})")]
    NotAFile(String),
    /// No object has this name.
    #[error("not found: {0}")]
    NotFound(String),
    /// Reading is forbidden by the options, or the store has nothing of this kind.
    #[error("{0}")]
    Refused(String),
    /// The store refuses to give the item, and gave nothing before that tells whether it refuses this item alone.
    #[error("{0}")]
    Denied(String),
    /// The store refuses to give the item, but still gives others. Other rights may read it.
    #[error("{0}")]
    Forbidden(String),
    /// The store keeps every item back that it gave before: expired credentials, a wrong clock, an outage.
    #[error("{0}")]
    StoreGone(String),
    /// The store did not answer in time, or answered only in part.
    #[error("{0}")]
    Unreachable(String),
    /// The container lacks a column that the options name, or leaves open which one they mean.
    #[error("{0}")]
    NoColumn(String),
    /// The container that holds it is damaged.
    #[error("{0}")]
    Damaged(String),
    /// It changed after it was listed.
    #[error("{0} changed after it was listed")]
    Changed(String),
    /// The folder in which the item was found is gone, with everything in it.
    #[error("the folder {folder} {problem}")]
    FolderGone {
        /// The folder, as the user named it.
        folder: String,
        /// Its fate.
        problem: String,
    },
}

impl From<std::io::Error> for FetchError {
    /// A reader of a [`Blob`](blob::Blob) reports its own errors as the inner error of an [`std::io::Error`]; they come
    /// back as they were.
    fn from(error: std::io::Error) -> Self {
        error.downcast().unwrap_or_else(Self::Io)
    }
}

impl From<FetchError> for std::io::Error {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Io(error) => error,
            error => Self::other(error),
        }
    }
}

impl FetchError {
    /// Returns the reach of this error: one item, or the run if the item's whole folder or store is gone.
    pub fn scope(&self) -> FaultScope {
        match self {
            Self::FolderGone { .. } | Self::StoreGone(_) => FaultScope::Run,
            _ => FaultScope::Item,
        }
    }

    /// Returns true if the storage may be the cause, rather than the item. Then the next items may fail for the same
    /// reason.
    pub fn suspects_storage(&self) -> bool {
        self.scope() == FaultScope::Run || matches!(self, Self::Io(_) | Self::Unreachable(_) | Self::Denied(_))
    }

    /// Returns true if a later retry may succeed.
    pub fn is_transient(&self) -> bool {
        use std::io::ErrorKind::{Interrupted, ResourceBusy, StaleNetworkFileHandle, TimedOut};
        match self {
            Self::Unreachable(_) | Self::Forbidden(_) | Self::StoreGone(_) => true,
            Self::Io(error) => matches!(error.kind(), Interrupted | ResourceBusy | StaleNetworkFileHandle | TimedOut),
            _ => false,
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)
    }
}
