//! The behaviour of a test program with and without a resource. This program is both the tests and the program under
//! test, which the tests start with a variable.

#![allow(clippy::unwrap_used)] // tests may; a target without the harness is not known to be one

use std::path::Path;
use std::process::{Command, ExitCode};

use foveate_testkit::{Resource, data, ignore, program, python, run, trial, trials};

/// The variable that marks a process as the program under test.
const UNDER_TEST: &str = "FOVEATE_TESTKIT_UNDER_TEST";

fn main() -> ExitCode {
    if std::env::var_os(UNDER_TEST).is_some() {
        return run(subjects());
    }
    run(trials![
        what_is_missing_is_ignored_with_the_reason,
        what_is_missing_and_required_fails,
        what_is_there_is_used,
        panics_and_errors_are_failures_with_their_messages,
        an_unknown_name_is_refused,
        missing_modules_are_named,
    ])
}

fn subjects() -> Vec<foveate_testkit::Trial> {
    let mut subjects = trials![needs_nothing, needs_data, needs_curl, needs_modules, panics];
    subjects.push(trial("returns_an_error", || Err::<(), _>("an error's words")));
    subjects.push(trial("ignores_itself", || -> () { ignore("its own reason") }));
    subjects
}

fn needs_nothing() {}

fn needs_data() {
    data("no such file");
}

fn needs_curl() {
    let output = program(Resource::Curl, "curl").output().unwrap();
    assert_eq!(output.stdout, b"a made-up curl\n");
}

fn needs_modules() {
    python(&["json", "no_such_module"]);
}

fn panics() {
    panic!("a panic's {}", "words");
}

struct Ran {
    code: i32,
    said: String,
}

/// Runs one of the subjects with this environment.
fn subject(name: &str, required: &str, path: &Path) -> Ran {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name]).env(UNDER_TEST, "1").env("FOVEATE_REQUIRE", required).env("PATH", path);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    Ran { code: output.status.code().unwrap(), said }
}

impl Ran {
    #[track_caller]
    fn is(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{}", self.said);
        assert!(words.iter().all(|words| self.said.contains(words)), "{}", self.said);
    }
}

fn nowhere() -> &'static Path {
    Path::new("/nowhere")
}

fn what_is_missing_is_ignored_with_the_reason() {
    for required in ["", "nats,python"] {
        let ran = subject("needs_data", required, nowhere());
        ran.is(0, &["ignored (needs data: there is no ../shared/data/no such file; put the ", "0 passed", "1 ignored"]);
    }
    subject("needs_curl", "data", nowhere()).is(0, &["ignored (needs curl: there is no curl in PATH; install curl)"]);
    subject("ignores_itself", "all", nowhere()).is(0, &["ignored (its own reason)"]);
}

fn what_is_missing_and_required_fails() {
    for required in ["curl", "data, curl", "all"] {
        let words = "FOVEATE_REQUIRE names 'curl', but there is no curl in PATH; install curl";
        subject("needs_curl", required, nowhere()).is(101, &[words, "1 failed", "0 ignored"]);
    }
}

fn what_is_there_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let curl = folder.path().join("curl");
    std::fs::write(&curl, "#!/bin/sh\necho a made-up curl\n").unwrap();
    make_executable(&curl);
    for required in ["", "curl"] {
        subject("needs_curl", required, folder.path()).is(0, &["1 passed", "0 ignored"]);
    }
    subject("needs_nothing", "all", nowhere()).is(0, &["1 passed", "0 ignored"]);
}

#[cfg(unix)]
fn make_executable(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[cfg(not(unix))]
fn make_executable(_: &Path) {
    ignore("programs are not scripts here");
}

fn panics_and_errors_are_failures_with_their_messages() {
    subject("panics", "", nowhere()).is(101, &["test panicked: a panic's words", "1 failed"]);
    subject("returns_an_error", "", nowhere()).is(101, &["an error's words", "1 failed"]);
}

fn an_unknown_name_is_refused() {
    subject("needs_nothing", "data,natz", nowhere()).is(2, &["FOVEATE_REQUIRE names 'natz', which is no resource"]);
}

fn missing_modules_are_named() {
    drop(python(&[]));
    let path = std::env::var_os("PATH").unwrap();
    let ran = subject("needs_modules", "", Path::new(&path));
    ran.is(0, &["ignored (needs python: ", " has no no_such_module; install python3 and the modules with pip)"]);
}
