//! The conformance suite of the `Encoder` trait, and what the registry answers.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

mod support;

use foveate_encode::conformance;
use foveate_encode_ort::OrtEncoder;
use support::{TINY, is_there, tiny};

#[test]
fn tiny_models() {
    if is_there() {
        for name in TINY {
            let graph = tiny(name);
            conformance::check(64, |options| Box::new(OrtEncoder::open(&graph, options).unwrap()));
        }
    }
}
