//! Selects what cargo builds: the same packages and features for every step but the quick start, so that each
//! dependency is built once.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::cargo::{cargo, succeed, target};
use crate::clock;
use crate::rules::layers::MAP;
use crate::setup;
use crate::tree::Tree;

/// Every backend in the facade and the parity tests but those of [`SLOW_TO_LOAD`]. Not `--all-features`, which would
/// need nvcc.
const FEATURES: &str = "foveate/cuda,foveate/nvjpeg,foveate/ort-cuda,foveate/ort-tensorrt,\
    foveate/sqs,foveate/nats,foveate/object-store,foveate/otel,foveate-tests/native";
/// Backends of the facade whose libraries take a program half a second to load, which its tests do thousands of times.
/// The parity tests have them; the facade's own have them in the long form.
const SLOW_TO_LOAD: &str = "foveate/opencv,foveate/tch";
/// Changes of the profile with which the tests run.
const CHECKED: [&str; 4] = ["--config", "xtask/quick.toml", "--config", "xtask/checked.toml"];

/// Arguments that select the whole workspace with all features, or the default members if the native libraries are
/// missing.
pub(crate) fn everything(root: &Path) -> Result<Vec<String>> {
    selected(root, &format!("{FEATURES},{SLOW_TO_LOAD}"))
}

/// Arguments that select what is tested.
fn tested(root: &Path) -> Result<Vec<String>> {
    if clock::is_long() { everything(root) } else { selected(root, FEATURES) }
}

fn selected(root: &Path, features: &str) -> Result<Vec<String>> {
    let mut args = vec!["--workspace".to_owned()];
    if setup::is_done(root) {
        args.extend(["--features".to_owned(), features.to_owned()]);
    } else {
        println!("without the native backends; `cargo xtask setup` installs what they need");
        let packages = Tree::load(root)?.packages;
        let native = packages.into_iter().map(|package| package.name).filter(|name| MAP.native.contains(name));
        args.extend(native.flat_map(|name| ["--exclude".to_owned(), name]));
    }
    Ok(args)
}

/// `cargo test` for the whole workspace, or for the default members if the native libraries are missing. `checked`
/// turns on overflow checks and debug assertions.
pub(crate) fn test(root: &Path, checked: bool) -> Result<Command> {
    let mut command = cargo(root);
    command.args(["test", "--release"]);
    if checked {
        command.args(CHECKED);
    }
    if setup::is_done(root) {
        command.args(tested(root)?);
    } else {
        println!("default members only; `cargo xtask setup` installs what the other backends need");
    }
    Ok(command)
}

/// Builds one program from the artifacts of the checked tests. Naming a test makes cargo resolve features with
/// dev-dependencies, as `cargo test` does.
pub(crate) fn build(root: &Path, program: &str) -> Result<PathBuf> {
    let mut command = cargo(root);
    command.args(["build", "--release", "--bin", program, "--test", "parity"]).args(CHECKED);
    succeed(command.args(tested(root)?))?;
    Ok(target(root).join("release").join(program))
}
