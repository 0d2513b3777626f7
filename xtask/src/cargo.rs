//! Starts cargo and other programs as a shell would.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The workspace root: the folder above this crate's.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Cargo in `folder`, with a shell's environment.
pub(crate) fn cargo(folder: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    forget_package(command.current_dir(folder));
    command
}

/// Removes the variables that `cargo run` sets for xtask. Build scripts read some of them. Their crates and all
/// dependents would be rebuilt whenever cargo is started by xtask after a shell, or by a shell after xtask.
pub(crate) fn forget_package(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
}

/// Cargo's target folder.
pub(crate) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// The folder of cargo's registries.
pub(crate) fn cargo_home() -> Result<PathBuf> {
    let own = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    own.or_else(|| Some(std::env::home_dir()?.join(".cargo"))).context("no home folder is known")
}

/// A command line of the README, run by `sh`.
pub(crate) fn shell(root: &Path, command: &str) -> Command {
    let mut shell = Command::new("sh");
    forget_package(shell.current_dir(root).args(["-c", command]).stdin(Stdio::null()));
    shell
}

/// Runs a command to its end, with its output on this terminal. Fails if the command fails.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let program = command.get_program().display().to_string();
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot start {program}"))?;
    ensure!(status.success(), "{program} failed ({status})");
    Ok(())
}

/// Runs a program and returns its output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    ensure!(output.status.success(), "{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// The programs that cargo names in its messages, with `--message-format json`.
pub(crate) fn executables(messages: &[u8]) -> Vec<PathBuf> {
    let mut programs = Vec::new();
    for line in messages.split(|byte| *byte == b'\n') {
        let message: Value = serde_json::from_slice(line).unwrap_or_default();
        programs.extend(message["executable"].as_str().map(PathBuf::from));
    }
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_cargos_messages() {
        let messages = "{\"reason\":\"x\",\"executable\":null}\nnoise\n{\"executable\":\"/t/foveate\"}";
        assert_eq!(executables(messages.as_bytes()), [Path::new("/t/foveate")]);
    }
}
