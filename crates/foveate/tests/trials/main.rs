//! The binary with brokers, devices, stores and Python clients. Trials report what they miss. One program, because each
//! takes long to link.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "a test's panic is its report")]

#[path = "../common/mod.rs"]
mod common;

mod cuda;
mod instruments;
mod model;
mod serve;
mod sources;
#[cfg(feature = "object-store")]
mod store_output;
#[cfg(feature = "nats")]
mod worker;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut trials = cuda::trials();
    trials.extend(instruments::trials());
    trials.extend(model::trials());
    trials.extend(serve::trials());
    trials.extend(sources::trials());
    #[cfg(feature = "object-store")]
    trials.extend(store_output::trials());
    #[cfg(feature = "nats")]
    trials.extend(worker::trials());
    foveate_testkit::run(trials)
}
