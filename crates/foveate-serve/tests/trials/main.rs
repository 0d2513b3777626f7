//! The server as other people's programs see it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test's panic is its report")]

mod readme;
mod schemathesis;
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut trials = readme::trials();
    trials.extend(schemathesis::trials());
    foveate_testkit::run(trials)
}
