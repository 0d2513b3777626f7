//! Parity: every compiled decoder against every conformance file, every resizer against Pillow's and OpenCV's crops,
//! every encoder against `transformers`' vectors, every sink against its trait's suite, every combination from the
//! original file, and recall on labelled photos. What is run comes from the facade's registries, so a new backend is covered without a line here; one that is
//! known but not compiled in is reported as ignored.
//!
//! `cargo test --release -p foveate-tests --test parity -- decode::zune` runs the trials of one backend.

// Tests may unwrap; clippy.toml's allowance does not reach a test target without the harness.
#![allow(clippy::unwrap_used)]

mod decoders;
mod encoders;
mod files;
mod recall;
mod reference;
mod resizers;
mod sinks;

use std::process::ExitCode;

use foveate_core::{Backend, Registry};
use foveate_testkit::Trial;
use foveate_tests::trial::{Outcome, trial};

fn main() -> ExitCode {
    let mut trials = Vec::new();
    trials.extend(decoders::trials());
    trials.extend(resizers::trials());
    trials.extend(encoders::trials());
    trials.extend(sinks::trials());
    trials.extend(files::trials());
    trials.extend(recall::trials());
    foveate_testkit::run(trials)
}

/// Names of the compiled backends of a registry, and an ignored trial for each that is only known.
fn backends<B: Backend>(stage: &str, registry: &Registry<B>) -> (Vec<String>, Vec<Trial>) {
    let compiled: Vec<String> = registry.iter().map(|backend| backend.name().to_owned()).collect();
    let missing = registry.known().iter().filter(|name| !compiled.iter().any(|compiled| compiled == *name));
    let ignored = missing.map(|name| {
        let reason = format!("not compiled in; rebuild with -F {name}");
        trial(format!("{stage}::{name}"), move || Err(Outcome::Ignored(reason)))
    });
    let ignored = ignored.collect();
    (compiled, ignored)
}
