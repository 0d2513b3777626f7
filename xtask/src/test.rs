//! `cargo xtask test`: builds all tests, then runs their programs, a few at a time.
//!
//! `cargo test` runs one program after the other. Many tests wait for brokers, servers and killed processes, so that
//! half of a small machine would be idle. With arguments, `cargo test` runs as usual.

use std::collections::VecDeque;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use std::{fs, io, thread};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cargo::{forget_package, succeed};
use crate::selection;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Test as released, without overflow checks and debug assertions
    #[arg(long)]
    unchecked: bool,
    /// Arguments of `cargo test`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Programs that run at the same time. Each has as many threads as the machine has cores.
const AT_ONCE: usize = 2;

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let cargo = || selection::test(root, !args.unchecked);
    if !args.args.is_empty() {
        return succeed(cargo()?.args(&args.args));
    }
    let start = Instant::now();
    let programs = build(cargo()?)?;
    println!("{} test programs, built in {:.0} s", programs.len(), start.elapsed().as_secs_f64());
    let start = Instant::now();
    let mut failed = run_all(programs)?;
    println!("run in {:.0} s", start.elapsed().as_secs_f64());
    if succeed(cargo()?.args(["--doc", "--no-fail-fast"])).is_err() {
        failed.push("documentation".to_owned());
    }
    ensure!(failed.is_empty(), "{} test programs failed: {}", failed.len(), failed.join(", "));
    Ok(())
}

/// A test program, as cargo built it.
struct Program {
    /// Package and target.
    name: String,
    path: PathBuf,
    /// The package's folder, where cargo starts its tests.
    folder: PathBuf,
}

/// Builds all tests. Those that run longest come first, so that none of them is left at the end: the facade's, which
/// start its binary many times, and then the largest.
fn build(mut cargo: Command) -> Result<Vec<Program>> {
    cargo.args(["--no-run", "--message-format=json-render-diagnostics"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = cargo.spawn().context("cannot start cargo")?;
    let output = child.stdout.take().context("no output to read")?;
    let messages = serde_json::Deserializer::from_reader(BufReader::new(output)).into_iter::<Value>();
    let mut programs = Vec::new();
    for message in messages {
        programs.extend(program(&message.context("cargo's messages cannot be read")?));
    }
    let status = child.wait()?;
    ensure!(status.success(), "the tests cannot be built ({status})");
    programs.sort_by_key(|program| {
        let len = fs::metadata(&program.path).map_or(0, |file| file.len());
        (!program.folder.ends_with("crates/foveate"), std::cmp::Reverse(len))
    });
    Ok(programs)
}

/// The test program that one of cargo's messages announces.
fn program(message: &Value) -> Option<Program> {
    let target = &message["target"];
    let is_test = message["profile"]["test"] == true || target["kind"][0] == "test";
    let path = PathBuf::from(message["executable"].as_str().filter(|_| is_test)?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let name = format!("{} {}", folder.file_name()?.to_string_lossy(), target["name"].as_str()?);
    Some(Program { name, path, folder })
}

/// Runs the programs and returns the names of those that failed.
fn run_all(programs: Vec<Program>) -> Result<Vec<String>> {
    let waiting = Mutex::new(VecDeque::from(programs));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = || -> Result<Vec<String>> {
        let mut failed = Vec::new();
        while let Some(program) = next() {
            if !program.run()? {
                failed.push(program.name);
            }
        }
        Ok(failed)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        let mut failed = Vec::new();
        for thread in threads {
            failed.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(failed)
    })
}

impl Program {
    /// Runs the program in its package's folder and prints its output at its end, whole. Returns whether it passed.
    fn run(&self) -> Result<bool> {
        let start = Instant::now();
        let mut command = Command::new(&self.path);
        forget_package(command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder).stdin(Stdio::null()));
        let output = command.output().with_context(|| format!("cannot start {}", self.path.display()))?;
        let mut out = io::stdout().lock();
        writeln!(out, "\n     Running {} ({:.1} s)", self.name, start.elapsed().as_secs_f64())?;
        out.write_all(&output.stdout)?;
        out.write_all(&output.stderr)?;
        if !output.status.success() {
            writeln!(out, "{} failed ({})", self.name, output.status)?;
        }
        Ok(output.status.success())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::json;

    use super::*;

    fn message(kind: &str, test: bool, executable: Value) -> Value {
        json!({ "reason": "compiler-artifact", "manifest_path": "/x/crates/a/Cargo.toml", "executable": executable,
            "target": { "kind": [kind], "name": "b" }, "profile": { "test": test } })
    }

    #[test]
    fn test_programs_are_told_from_other_artifacts() {
        let found = program(&message("lib", true, json!("/t/a-1"))).unwrap();
        assert_eq!((found.name.as_str(), found.folder), ("a b", PathBuf::from("/x/crates/a")));
        // A harness of its own.
        assert!(program(&message("test", false, json!("/t/b-1"))).is_some());
        // What integration tests start, and libraries.
        assert!(program(&message("bin", false, json!("/t/foveate"))).is_none());
        assert!(program(&message("lib", false, Value::Null)).is_none());
        assert!(program(&json!({ "reason": "build-finished", "success": true })).is_none());
    }

    #[test]
    fn cargos_arguments_are_taken() {
        #[derive(clap::Parser)]
        struct Typed {
            #[command(flatten)]
            args: Args,
        }
        let Args { unchecked, args } = Typed::parse_from(["test", "resume", "--", "--skip", "kill"]).args;
        assert_eq!((unchecked, args), (false, ["resume", "--", "--skip", "kill"].map(str::to_owned).to_vec()));
    }

    #[test]
    fn every_program_runs_and_failures_are_named() {
        let of = |name: &str, path: &str| Program { name: name.into(), path: path.into(), folder: "/".into() };
        assert_eq!(run_all(vec![of("good", "true"), of("bad", "false"), of("fine", "true")]).unwrap(), ["bad"]);
        assert!(run_all(vec![of("missing", "/nowhere/at all")]).is_err());
    }
}
