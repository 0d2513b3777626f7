#![doc = include_str!("../README.md")]

mod backend;
#[cfg(feature = "conformance")]
pub mod conformance;
mod fetch;
mod id;
mod lister;
mod listing;
mod pattern;
mod spool;
mod walk;

use std::fmt;
use std::ops::Range;

use foveate_core::FaultScope;

pub use backend::{FetchBackend, FetchOpener, FetchOptions, FetchRegistry};
pub use fetch::FileFetch;
pub use lister::{IMAGE_EXTENSIONS, ListingStats};
pub use listing::{DEFAULT_MAX_BYTES, Input, Listing, ListingBuilder};

/// One input, known by its place in the source's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Place in the whole source, counted from 0; sharding and resuming keep it.
    pub index: u64,
    /// The name the user knows it by, written to the output (for files: the path as given or found, as UTF-8;
    /// bytes that are not UTF-8 are written `\xNN`, and a backslash itself is doubled in such a path).
    pub id: String,
    /// What the source's own [`Fetch`] needs to find the bytes; opaque to everybody else.
    pub locator: Vec<u8>,
    /// Set when enumerating already showed that this input cannot be read (an unreadable folder, a symlink loop, a
    /// pattern that matches nothing): it is an input with a failed outcome, not a reason to stop.
    pub fault: Option<String>,
}

/// Enumerates items in a fixed order. The order is a function of the inputs alone, so that row order, `--shard` and
/// resuming are arithmetic on [`Item::index`].
pub trait Source: Send {
    /// The next item, or `None` at the end. An error is a run fault (the listing itself broke).
    fn next_item(&mut self) -> Result<Option<Item>, SourceError>;

    /// The indexes this source yields, every one of them, in order: all of the listing, or the part of it that a shard
    /// or a limit leaves. Indexes count from the start of the *whole* listing, so that the shards' outputs laid end to
    /// end are the unsharded output. Known and constant from the start; `seek` does not change it.
    fn range(&self) -> Range<u64>;

    /// Continues at item `index`: the next item is that one, or the first of [`range`](Self::range) when `index` lies
    /// before it, or none when it lies at or beyond its end.
    fn seek(&mut self, index: u64) -> Result<(), SourceError>;

    /// A digest of every id of the *whole* listing in order (shards of one listing agree on it), as lower-case hex:
    /// part of a run's fingerprint.
    fn listing_hash(&self) -> String;

    /// A reader of this source's items, one per I/O thread.
    fn open_fetch(&self) -> Result<Box<dyn Fetch>, SourceError>;
}

/// Gets the bytes of items.
pub trait Fetch: Send {
    /// Replaces the content of `out` with the item's bytes. `out` keeps its memory from item to item and is empty
    /// after an error.
    fn fetch(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError>;
}

/// The listing broke: a run fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// An operating-system error with what was being done.
    #[error("cannot {action}")]
    Io {
        /// What was being done, with the path: "read photos".
        action: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The inputs themselves make no sense.
    #[error("{0}")]
    Invalid(String),
}

/// An item's bytes could not be had: an item fault.
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
    /// There is none of that name.
    #[error("not found: {0}")]
    NotFound(String),
    /// It may not be read: not by the options, or not by who keeps it.
    #[error("{0}")]
    Refused(String),
    /// Who keeps it did not answer, not in time or not with all of it.
    #[error("{0}")]
    Unreachable(String),
}

impl FetchError {
    /// Only the item is lost.
    pub fn scope(&self) -> FaultScope {
        FaultScope::Item
    }

    /// Whether trying again later may help.
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
