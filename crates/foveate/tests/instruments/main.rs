//! The binary's measuring commands, and its work on emulated devices. Trials report what they miss.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

#[path = "../common/mod.rs"]
mod common;
mod cuda;
mod measuring;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut trials = cuda::trials();
    trials.extend(measuring::trials());
    foveate_testkit::run(trials)
}
