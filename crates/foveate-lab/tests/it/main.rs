//! Experiments on stages that are slow on purpose.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test's panic is its report")]

mod bench;
mod common;
mod delivered;
mod diagnose;
mod model;
mod profile;
mod stand_in;
mod store;
