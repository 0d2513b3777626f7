//! Starts cargo and other programs as a shell would.

use std::fs;
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

/// Runs a program and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    Ok(outputs(command)?.0)
}

/// Runs a program and returns its standard output and its standard error.
pub(crate) fn outputs(command: &mut Command) -> Result<(String, String)> {
    let program = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{program} failed ({}):\n{}", output.status, said.trim());
    Ok((String::from_utf8(output.stdout)?, said))
}

/// Runs git and returns its output. In containers, the checkout often belongs to another user; to read it is harmless.
pub(crate) fn git(folder: &Path, args: &[&str]) -> Result<String> {
    output(Command::new("git").current_dir(folder).args(["-c", "safe.directory=*"]).args(args))
}

/// Returns true if Python runs these lines, such as imports.
pub(crate) fn python_runs(lines: &str) -> bool {
    outputs(Command::new("python3").args(["-c", lines])).is_ok()
}

/// Makes a folder that is empty.
pub(crate) fn empty_folder(path: &Path) -> Result<()> {
    if path.exists() {
        fs::remove_dir_all(path)?;
    }
    fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))
}

/// The arguments of a chore, from the words of its command line.
pub(crate) fn parsed<A: clap::Args>(words: &[&str]) -> Result<A> {
    let command = A::augment_args(clap::Command::new("xtask").no_binary_name(true));
    Ok(A::from_arg_matches(&command.try_get_matches_from(words)?)?)
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
