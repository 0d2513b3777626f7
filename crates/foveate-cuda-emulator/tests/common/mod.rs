//! Tests in child processes, because an order or a number of devices belongs to a whole process.

#![allow(dead_code, reason = "each test file uses a part")]

use std::process::{Command, Output};

use foveate_cuda_emulator::for_trial;

/// The orders in which a correct program gives the same result.
pub(crate) const ORDERS: [&str; 5] = ["late", "eager", "random:1", "random:2", "random:3"];

const MARK: &str = "CUDA_EMULATOR_TEST";

/// Returns true if this process is one that [`child`] started, with the emulator loaded.
pub(crate) fn inside() -> bool {
    let inside = std::env::var_os(MARK).is_some();
    if inside {
        foveate_cuda_emulator::load().expect("the parent loaded it too");
    }
    inside
}

/// Runs one test of this program again, in a child process with these variables.
pub(crate) fn child(test: &str, variables: &[(&str, &str)]) -> Output {
    for_trial(foveate_cuda_emulator::load);
    let program = std::env::current_exe().expect("the test's program");
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(MARK, "1");
    command.envs(variables.iter().copied());
    command.output().expect("the test's program starts")
}

/// Runs `body` once in every order, each in a process of its own. `test` is the calling test's name.
pub(crate) fn in_every_order(test: &str, variables: &[(&str, &str)], body: fn()) {
    if inside() {
        return body();
    }
    for order in ORDERS {
        let variables = [variables, &[("CUDA_EMULATOR_ORDER", order)]].concat();
        passed(&child(test, &variables));
    }
}

/// Checks that the child ran its test, and that it passed.
pub(crate) fn passed(output: &Output) {
    assert!(output.status.success() && text(output).contains("1 passed"), "{}", text(output));
}

/// Runs `body` in a process that must end with this message.
pub(crate) fn dies(test: &str, message: &str, body: fn()) {
    if inside() {
        return body();
    }
    let output = child(test, &[("CUDA_EMULATOR_ORDER", "late")]);
    assert!(!output.status.success() && text(&output).contains(message), "{}", text(&output));
}

pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
