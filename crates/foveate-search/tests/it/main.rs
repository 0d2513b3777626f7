//! Answers compared with plain computations.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod clusters;
mod evaluate;
mod exact;
mod state;
