//! The report of a run with made-up numbers.

mod common;
mod input;
mod origins;
mod page;
