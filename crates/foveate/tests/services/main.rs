//! The binary as a worker and as a server, with brokers and Python clients. Trials report what they miss.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test's panic is its report")]

#[path = "../common/mod.rs"]
mod common;
mod serve;
#[cfg(feature = "nats")]
mod worker;

use std::process::ExitCode;

fn main() -> ExitCode {
    #[allow(unused_mut, reason = "brokers are in some builds")]
    let mut trials = serve::trials();
    #[cfg(feature = "nats")]
    trials.extend(worker::trials());
    foveate_testkit::run(trials)
}
