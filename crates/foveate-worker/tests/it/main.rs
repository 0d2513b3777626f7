//! The engine of requests and the queue worker around it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test's panic is its report")]

mod attacks;
mod embed;
mod engine;
mod support;
mod worker;
