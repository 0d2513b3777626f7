//! The server's interface and its limits.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod api;
mod limits;
#[path = "../support/mod.rs"]
mod support;
