//! Sources on disk, in containers and in stores.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod containers;
mod listing;
mod stores;
