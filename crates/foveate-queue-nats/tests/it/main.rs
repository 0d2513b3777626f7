//! The queue on a real NATS server.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test's panic is its report")]

mod access;
mod conformance;
mod interop;
mod restart;

use std::process::ExitCode;

use tokio::runtime::Runtime;

fn main() -> ExitCode {
    if let Ok(address) = std::env::var(access::ADDRESS) {
        Runtime::new().unwrap().block_on(access::open_and_say(&address));
        return ExitCode::SUCCESS;
    }
    let mut trials = access::trials();
    trials.extend(conformance::trials());
    trials.extend(interop::trials());
    trials.extend(restart::trials());
    foveate_testkit::run(trials)
}
