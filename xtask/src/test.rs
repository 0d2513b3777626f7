//! `cargo xtask test`: builds all tests, then runs their programs, a few at a time.
//!
//! `cargo test` runs one program after the other. Many tests wait for brokers, servers and killed processes, so that
//! half of a small machine would be idle. With arguments, `cargo test` runs as usual.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cargo::{forget_package, succeed, target};
use crate::{clock, selection};

#[derive(clap::Args)]
pub(crate) struct TestArgs {
    /// Test as released, without overflow checks and debug assertions
    #[arg(long)]
    unchecked: bool,
    /// Arguments of `cargo test`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// The programs that take a minute or more, longest first. Some wait for most of it, some compute.
const LONGEST: [&str; 7] = [
    "foveate services",
    "tests parity",
    "foveate outputs",
    "foveate instruments",
    "foveate collections",
    "foveate it",
    "foveate-encode-fused cuda",
];
/// Name of the documentation's tests in the output.
const DOCUMENTATION: &str = "documentation";
/// Prefix of a program's name.
const RUNNING: &str = "      Running ";
/// Programs that run at the same time. Each has as many threads as the machine has cores. Two left a third of two cores
/// idle, because some, such as the services, mostly wait.
const AT_ONCE: usize = 3;
/// If no more programs than these failed beside others, what failed in them runs once more, alone.
const REPEATED: usize = 2;

pub(crate) fn run(root: &Path, args: &TestArgs) -> Result<()> {
    let mut cargo = selection::test(root, !args.unchecked)?;
    if !args.args.is_empty() {
        return succeed(cargo.args(&args.args));
    }
    let start = Instant::now();
    let programs = build(cargo)?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{} {} test programs, built in {seconds:.0} s", clock::elapsed(), programs.len());
    let start = Instant::now();
    let outputs = target(root).join("test-outputs");
    fs::create_dir_all(&outputs)?;
    let (mut failed, unsteady) = repeat(run_all(programs, &outputs)?, &outputs)?;
    println!("{} run in {:.0} s", clock::elapsed(), start.elapsed().as_secs_f64());
    let mut documentation = selection::test(root, !args.unchecked)?;
    documentation.args(["--doc", "--no-fail-fast"]);
    if !run_program(DOCUMENTATION, &mut documentation, &outputs)? {
        failed.push(DOCUMENTATION.to_owned());
    }
    for name in &failed {
        println!("\nThe end of {name}'s output, once more:\n{}", end_of(&fs::read_to_string(log(&outputs, name))?));
    }
    if !unsteady.is_empty() {
        println!("\nwarning: failed beside others and passed alone, to be mended: {}", unsteady.join(", "));
    }
    ensure!(failed.is_empty(), "{} test programs failed: {}", failed.len(), failed.join(", "));
    Ok(())
}

/// Runs what failed once more, alone, if little did: a test that a busy machine disturbs is a warning. Returns the
/// names of the programs that failed again, and of those that passed.
fn repeat(failed: Vec<TestProgram>, outputs: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let mut again = Vec::new();
    let mut unsteady = Vec::new();
    let is_little = failed.len() <= REPEATED;
    for program in failed {
        let first = fs::read_to_string(log(outputs, &program.name))?;
        let is_well = is_little && run_program(&program.name, program.command().args(left_out(&first)), outputs)?;
        if is_well { &mut unsteady } else { &mut again }.push(program.name);
    }
    Ok((again, unsteady))
}

/// Arguments of a test program that leave out what passed according to its output.
fn left_out(output: &str) -> Vec<&str> {
    // Trials have names of equal width.
    let passed = output.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... ok"));
    let skip: Vec<&str> = passed.flat_map(|name| ["--skip", name.trim_end()]).collect();
    if skip.is_empty() { skip } else { [vec!["--exact"], skip].concat() }
}

/// The last lines of a text: the end of CI's log is where failures are looked for.
fn end_of(text: &str) -> String {
    const LINES: usize = 50;
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

/// A test program, as cargo built it.
struct TestProgram {
    /// Package and target.
    name: String,
    path: PathBuf,
    /// The package's folder, where cargo starts its tests.
    folder: PathBuf,
}

/// Builds all tests. Those that run longest come first, so that none of them is left at the end: the facade's, which
/// start its binary many times, are among them; of the others, the largest.
fn build(mut cargo: Command) -> Result<Vec<TestProgram>> {
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
        let place = LONGEST.iter().position(|name| *name == program.name).unwrap_or(LONGEST.len());
        let len = fs::metadata(&program.path).map_or(0, |file| file.len());
        (place, !program.folder.ends_with("crates/foveate"), std::cmp::Reverse(len))
    });
    Ok(programs)
}

/// The test program that one of cargo's messages announces.
fn program(message: &Value) -> Option<TestProgram> {
    let target = &message["target"];
    let is_test = message["profile"]["test"] == true || target["kind"][0] == "test";
    let path = PathBuf::from(message["executable"].as_str().filter(|_| is_test)?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let name = format!("{} {}", folder.file_name()?.to_string_lossy(), target["name"].as_str()?);
    Some(TestProgram { name, path, folder })
}

/// Runs programs while any waits, and returns those that failed.
fn run_waiting(waiting: &Mutex<VecDeque<TestProgram>>, outputs: &Path) -> Result<Vec<TestProgram>> {
    let mut failed = Vec::new();
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(program) = next else { return Ok(failed) };
        if !run_program(&program.name, &mut program.command(), outputs)? {
            failed.push(program);
        }
    }
}

/// Runs the programs and returns those that failed.
fn run_all(programs: Vec<TestProgram>, outputs: &Path) -> Result<Vec<TestProgram>> {
    let waiting = Mutex::new(VecDeque::from(programs));
    let waiting = &waiting;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(|| run_waiting(waiting, outputs))).collect();
        let mut failed = Vec::new();
        for thread in threads {
            failed.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(failed)
    })
}

impl TestProgram {
    /// Runs the program in its package's folder.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        forget_package(command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder));
        command
    }
}

/// Runs tests and prints their output at their end, whole. Returns whether they passed.
fn run_program(name: &str, command: &mut Command, outputs: &Path) -> Result<bool> {
    let start = Instant::now();
    let limit = limit();
    let path = log(outputs, name);
    let (status, processor) = run_limited(command, &path, limit).with_context(|| format!("cannot run {name}"))?;
    let mut out = io::stdout().lock();
    let seconds = start.elapsed().as_secs_f64();
    let processor = processor.as_secs_f64();
    writeln!(out, "\n{}{RUNNING}{name} ({seconds:.1} s, {processor:.1} s of processors)", clock::elapsed())?;
    io::copy(&mut File::open(&path)?, &mut out)?;
    match status {
        Some(status) if status.success() => return Ok(true),
        Some(status) => writeln!(out, "{name} failed ({status})")?,
        None => writeln!(out, "{name} failed: it hung, and was killed after {} s", limit.as_secs())?,
    }
    Ok(false)
}

fn log(outputs: &Path, name: &str) -> PathBuf {
    outputs.join(format!("{}.log", name.replace(' ', "-")))
}

/// The time that one program may take.
fn limit() -> Duration {
    const MINUTE: Duration = Duration::from_secs(60);
    match clock::is_long() {
        true => 60 * MINUTE,
        false => clock::elapsed().left(clock::LIMIT).clamp(MINUTE, 30 * MINUTE),
    }
}

/// Runs a command with its output in a file, and returns its status and processor time. No status if it had not ended
/// within the limit. Its children do not outlive it, and cannot hold it up as the readers of a pipe would.
fn run_limited(command: &mut Command, output: &Path, limit: Duration) -> Result<(Option<ExitStatus>, Duration)> {
    const LOOK: Duration = Duration::from_millis(10);
    let file = File::create(output)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    let mut child = command.spawn()?;
    let start = Instant::now();
    let mut ended = None;
    let mut processor = Duration::ZERO;
    while ended.is_none() && start.elapsed() < limit {
        thread::sleep(LOOK);
        processor = processor.max(clock::processor_time(&child.id().to_string(), 4));
        ended = child.try_wait()?;
    }
    // The group is gone if nobody is left.
    let kill = format!("kill -KILL -{}", child.id());
    let _ = Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).status();
    if ended.is_none() {
        child.kill()?;
        child.wait()?;
    }
    Ok((ended, processor))
}

#[cfg(test)]
mod tests {
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
        let TestArgs { unchecked, args } = crate::cargo::parsed(&["resume", "--", "--skip", "kill"]).unwrap();
        assert_eq!((unchecked, args), (false, ["resume", "--", "--skip", "kill"].map(str::to_owned).to_vec()));
    }

    #[test]
    fn tests_that_passed_are_left_out() {
        let output = "running 3 tests\ntest one   ... ok\ntest x::two ... ignored\ntest three ... FAILED\n";
        assert_eq!(left_out(output), ["--exact", "--skip", "one"]);
        assert!(left_out("test one ... FAILED\n").is_empty());
        // The arguments mean the same to both harnesses.
        let program = Command::new(std::env::current_exe().unwrap())
            .args(["--list", "--exact", "--skip", "test::tests::cargos_arguments_are_taken"])
            .output()
            .unwrap();
        let listed = String::from_utf8(program.stdout).unwrap();
        assert!(
            !listed.contains("::cargos_arguments_are_taken:") && listed.contains("::every_program_runs"),
            "{listed}"
        );
    }

    #[test]
    fn every_program_runs_and_failures_are_named() {
        let outputs = tempfile::tempdir().unwrap();
        let of = |name: &str, path: &str| TestProgram { name: name.into(), path: path.into(), folder: "/".into() };
        let programs = vec![of("good", "true"), of("bad", "false"), of("fine", "true")];
        let failed = run_all(programs, outputs.path()).unwrap();
        assert_eq!(failed.iter().map(|program| program.name.as_str()).collect::<Vec<_>>(), ["bad"]);
        assert!(run_all(vec![of("missing", "/nowhere/at all")], outputs.path()).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn what_failed_runs_once_more_alone_if_it_is_little() {
        use std::os::unix::fs::PermissionsExt;

        let outputs = tempfile::tempdir().unwrap();
        // Fails the first time, and passes if it is asked to leave out what passed then.
        let script = outputs.path().join("unsteady.sh");
        let text = "#!/bin/sh\nif [ \"$*\" = '--exact --skip one' ]; then exit 0; fi\necho 'test one ... ok'\nexit 1\n";
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let of = |name: &str, path: &Path| TestProgram { name: name.into(), path: path.into(), folder: "/".into() };
        let bad = || of("bad", Path::new("false"));
        let ran = |programs| {
            let failed = run_all(programs, outputs.path()).unwrap();
            repeat(failed, outputs.path()).unwrap()
        };
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(ran(vec![of("unsteady", &script), bad()]), (names(&["bad"]), names(&["unsteady"])));
        assert_eq!(ran(vec![of("unsteady", &script), bad(), bad()]).1, names(&[]));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn nobody_holds_a_program_up_or_outlives_it() {
        let outputs = tempfile::tempdir().unwrap();
        let run = |script: &str, seconds| {
            let output = outputs.path().join("output");
            let ran = run_limited(Command::new("sh").args(["-c", script]), &output, Duration::from_secs(seconds));
            (ran.unwrap().0.map(|status| status.success()), fs::read_to_string(output).unwrap())
        };
        // A server that a test left behind, with the output in its hands.
        let (passed, pid) = run("sleep 600 & echo $!", 300);
        assert_eq!((passed, dies(&pid)), (Some(true), true));
        let (passed, pid) = run("sleep 600 & echo $!; wait", 1);
        assert_eq!((passed, dies(&pid)), (None, true));
    }

    /// Waits for the end of a process that was killed. It may still be in the table of processes.
    #[cfg(target_os = "linux")]
    fn dies(pid: &str) -> bool {
        let is_alive = || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
        };
        let start = Instant::now();
        while is_alive() && start.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(1));
        }
        !is_alive()
    }
}
