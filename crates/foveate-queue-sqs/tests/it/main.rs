//! The queue on a stand-in of SQS.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test's panic is its report")]

mod access;
mod conformance;
mod interop;
mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut trials = access::trials();
    trials.extend(conformance::trials());
    trials.extend(interop::trials());
    foveate_testkit::run(trials)
}
