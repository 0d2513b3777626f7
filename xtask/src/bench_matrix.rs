//! `cargo xtask bench-matrix`: builds one `foveate` with every backend that this machine can build and start, and has
//! it measure all of them (`foveate bench matrix`).
//!
//! Features are additive, so one program has all backends. A feature is left out, and a line says why, if it does not
//! build or its program does not start. `benches/README.md` documents the columns.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, ensure};

use crate::cargo::succeed;
use crate::{cargo, setup};

#[derive(clap::Args)]
pub(crate) struct MatrixArgs {
    /// Exercise every cell briefly, with a tiny model
    #[arg(long)]
    quick: bool,
    /// Run every decoder with every resizer, encoder and sink once, on a few images
    #[arg(long)]
    cross: bool,
    /// Model of every cell
    #[arg(long, default_value = "seeded:dinov2-small")]
    #[arg(default_value_if("quick", "true", "tests/fixtures/models/tiny"))]
    model: String,
    /// Folder of photos
    #[arg(long, default_value = "examples/photos")]
    photos: String,
    /// Folder of the CSV file, relative to the workspace
    #[arg(long, default_value = "benches/runs", default_value_if("quick", "true", "target/bench-matrix"))]
    out: PathBuf,
    /// A built `foveate`, which is otherwise built first
    #[arg(long)]
    program: Option<PathBuf>,
}

pub(crate) fn run(root: &Path, args: &MatrixArgs) -> Result<()> {
    let program = match &args.program {
        Some(program) => program.clone(),
        None => build(root)?,
    };
    let folder = cargo::target(root).join("bench-matrix");
    let mut command = Command::new(program);
    command.current_dir(root).args(["bench", "matrix", &args.photos, "--model", &args.model, "--out"]).arg(&folder);
    let mut name = "matrix.csv";
    if args.cross {
        command.args(["--cross", "--images", "16", "--samples", "1"]);
        name = "cross.csv";
    }
    if args.quick {
        command.args(["--quick", "--images", "16", "--samples", "1"]);
    }
    succeed(&mut command)?;
    let out = root.join(&args.out);
    fs::create_dir_all(&out)?;
    let file = out.join(name);
    fs::copy(folder.join("matrix.csv"), &file)?;
    println!("{}", file.display());
    Ok(())
}

/// Builds the program with every feature that works here.
fn build(root: &Path) -> Result<PathBuf> {
    let mut features = vec!["candle"];
    features.extend(setup::features());
    match attempt(root, &features) {
        Ok(program) => return Ok(program),
        Err(reason) => println!("not with every feature ({reason}); trying them one by one"),
    }
    let mut working = Vec::new();
    for feature in features {
        match attempt(root, &[feature]) {
            Ok(_) => working.push(feature),
            Err(reason) => println!("without {feature}: {reason}"),
        }
    }
    attempt(root, &working)
}

/// Builds the program with `features` and starts it. The error is the reason in a line.
fn attempt(root: &Path, features: &[&str]) -> Result<PathBuf> {
    let mut command = cargo::cargo(root);
    command.args(["build", "--release", "--package", "foveate", "--bin", "foveate"]);
    command.args(["--message-format", "json-render-diagnostics", "--features", &features.join(",")]);
    let output = command.stdin(Stdio::null()).output().context("cannot start cargo")?;
    ensure!(output.status.success(), "{}", cause(&String::from_utf8_lossy(&output.stderr)));
    let program = cargo::executables(&output.stdout).pop().context("cargo named no program")?;
    let started = Command::new(&program).arg("--version").output();
    let started = started.map_err(|error| anyhow!("it does not start: {error}"))?;
    ensure!(started.status.success(), "it does not start: {}", cause(&String::from_utf8_lossy(&started.stderr)));
    Ok(program)
}

/// The most useful line of a failed command's output: a build script's or linker's error, or else the first error.
fn cause(output: &str) -> String {
    let lines: Vec<&str> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let said = lines.iter().skip_while(|line| **line != "--- stderr").nth(1);
    let error = lines.iter().find(|line| line.starts_with("error"));
    let line = said.or(error).or(lines.last()).unwrap_or(&"no reason given");
    line.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_what_the_tool_said() {
        let build =
            "   Compiling x\nerror: failed to run custom build command\n  --- stderr\n  Cannot find a libtorch\n";
        assert_eq!(cause(build), "Cannot find a libtorch");
        assert_eq!(cause("warning\nerror[E0432]: unresolved\nmore"), "error[E0432]: unresolved");
        assert_eq!(cause("foveate: libtorch_cpu.so: cannot open"), "foveate: libtorch_cpu.so: cannot open");
    }
}
