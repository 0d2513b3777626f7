//! Parity tests. They run every compiled decoder on every conformance file, and every resizer against Pillow's and
//! OpenCV's crops. They run every encoder against `transformers`' vectors, and every sink with its trait's suite. They
//! also run every combination and every family from the original file, and recall on labelled photos. The backends come
//! from the facade's registries, so a new backend is covered automatically. A known backend that is not compiled in is
//! reported as ignored.
//!
//! `cargo test --release -p foveate-tests --test parity -- decode::zune` runs the trials of one backend.

// Tests may unwrap; clippy.toml's allowance does not apply to a test target without the harness.
#![allow(clippy::unwrap_used)]

mod decoders;
mod encoders;
mod families;
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
    trials.extend(families::trials());
    trials.extend(recall::trials());
    foveate_testkit::run(trials)
}

/// The names of a registry's compiled backends, and an ignored trial for each other known backend.
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
