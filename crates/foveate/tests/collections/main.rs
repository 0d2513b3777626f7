//! The commands on whole collections: updates, merges, packs, searches.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

#[path = "../common/mod.rs"]
mod common;
mod duplicates;
mod merge;
mod pack;
mod search;
mod update;
