//! What only a GPU uses, with the host's memory in its place.

mod support;

use std::path::Path;
use std::process::ExitCode;

use foveate_encode_ort::checks;
use foveate_testkit::{run, trials};

fn main() -> ExitCode {
    run(trials![bound_runs_give_what_others_give, a_network_on_the_cpu_is_seen_there])
}

fn bound_runs_give_what_others_give() {
    support::need_onnx_runtime();
    checks::bound_runs_give_what_others_give(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/graphs"));
}

fn a_network_on_the_cpu_is_seen_there() {
    support::need_onnx_runtime();
    checks::a_network_on_the_cpu_is_seen_there(
        &foveate_testkit::encoders::fixtures().join("models/tiny/model.baked224.onnx"),
    );
}
