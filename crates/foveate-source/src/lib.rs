#![doc = include_str!("../README.md")]

mod backend;
#[cfg(feature = "conformance")]
pub mod conformance;
mod fetch;
mod id;
mod list;
mod lister;
mod listing;
mod pattern;
mod roots;
mod spool;
mod walk;

use std::fmt;
use std::ops::Range;
use std::time::SystemTime;

use foveate_core::FaultScope;

pub use backend::{FetchBackend, FetchOpener, FetchOptions, FetchRegistry};
pub use fetch::FileFetch;
pub use list::{ListEntry, ListReader, Separator};
pub use lister::{FOREIGN_EXTENSIONS, IMAGE_EXTENSIONS, ListingStats};
pub use listing::{DEFAULT_MAX_BYTES, DEFAULT_MAX_LISTING, Input, Listing, ListingBuilder};

/// One input, identified by its position in the source's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Position in the whole source, from 0; sharding and resuming keep it.
    pub index: u64,
    /// The user's name for it, written to the output. For files it is the path as given or found. On Unix, each byte
    /// that is not UTF-8 is written `\xNN` and each backslash is doubled, so that two paths never have one id.
    pub id: String,
    /// What the source's own [`Fetch`] needs to find the bytes; opaque to all other code.
    pub locator: Vec<u8>,
    /// Set if enumeration already found this input unreadable (an unreadable folder, a symlink loop, a pattern without
    /// a match). Such an input is an item with a failed outcome, not a reason to stop.
    pub fault: Option<String>,
}

/// Enumerates items in a fixed order. The order is a function of the inputs alone, so that row order, `--shard` and
/// resuming are arithmetic on [`Item::index`].
pub trait Source: Send {
    /// The next item, or `None` at the end. An error is a run fault (the listing itself broke).
    fn next_item(&mut self) -> Result<Option<Item>, SourceError>;

    /// The indexes of all items that this source yields, in order: the whole listing, or the part selected by a shard
    /// or a limit. Indexes count from the start of the *whole* listing, so the shards' outputs laid end to end equal
    /// the unsharded output. Constant from the start; `seek` does not change it.
    fn range(&self) -> Range<u64>;

    /// Continues at item `index`. The next item is that one, the first of [`range`](Self::range) if `index` lies before
    /// it, or none if `index` lies at or beyond its end.
    fn seek(&mut self, index: u64) -> Result<(), SourceError>;

    /// A digest of all ids of the *whole* listing in order, as lower-case hex. Equal for all shards of one listing, and
    /// part of a run's fingerprint.
    fn listing_hash(&self) -> String;

    /// A reader of this source's items, one per I/O thread.
    fn open_fetch(&self) -> Result<Box<dyn Fetch>, SourceError>;
}

/// Gets the bytes of items.
pub trait Fetch: Send {
    /// Replaces the content of `out` with the item's bytes. `out` keeps its memory from item to item and is empty after
    /// an error.
    fn fetch(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError>;

    /// The item's length in bytes and its time of modification, without reading it; `None` if they cannot be known.
    fn stamp(&mut self, _item: &Item) -> Option<(u64, SystemTime)> {
        None
    }
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
    /// A list of lines contains NUL.
    #[error("line {line} of {list} contains NUL: its paths end in NUL, or it is UTF-16 without a byte order mark")]
    NulInList {
        /// The list.
        list: String,
        /// The line, from 1.
        line: u64,
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
    Io(#[from] std::io::Error),
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
    /// Reading is forbidden, by the options or by the store.
    #[error("{0}")]
    Refused(String),
    /// The store did not answer in time, or answered only in part.
    #[error("{0}")]
    Unreachable(String),
    /// The folder in which the item was found is gone, with everything in it.
    #[error("the folder {folder} {problem}")]
    FolderGone {
        /// The folder, as the user named it.
        folder: String,
        /// What became of it.
        problem: String,
    },
}

impl FetchError {
    /// How far this error reaches: one item, or the run if the item's whole folder is gone.
    pub fn scope(&self) -> FaultScope {
        match self {
            Self::FolderGone { .. } => FaultScope::Run,
            _ => FaultScope::Item,
        }
    }

    /// Whether the storage may be the cause, rather than the item. Then the next items may fail for the same reason.
    pub fn suspects_storage(&self) -> bool {
        matches!(self, Self::Io(_) | Self::Unreachable(_) | Self::FolderGone { .. })
    }

    /// Whether a later retry may succeed.
    pub fn is_transient(&self) -> bool {
        use std::io::ErrorKind::{Interrupted, ResourceBusy, StaleNetworkFileHandle, TimedOut};
        match self {
            Self::Unreachable(_) => true,
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
