//! The binary on containers and stores, and its outputs after edits, kills and disturbed stores. Trials report what
//! they miss.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test's panic is its report")]

#[path = "../common/mod.rs"]
mod common;
mod model;
mod sources;
#[cfg(feature = "object-store")]
mod store_output;
#[cfg(feature = "text")]
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut trials = model::trials();
    trials.extend(sources::trials());
    #[cfg(feature = "object-store")]
    trials.extend(store_output::trials());
    #[cfg(feature = "text")]
    trials.extend(words::trials());
    foveate_testkit::run(trials)
}
