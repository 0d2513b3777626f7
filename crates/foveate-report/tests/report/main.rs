//! The report of a run with made-up numbers.

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

mod common;
mod input;
mod origins;
mod page;
