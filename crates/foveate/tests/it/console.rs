//! Standard output and standard error that are closed, full, or read by nobody.
#![cfg(target_os = "linux")]
use std::fs;
use std::io::{self, Write as _};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::common::{PHOTOS, embed, ended, foveate, long_list, run};

#[test]
fn a_reader_that_went_away_changes_no_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.jpg");
    fs::write(&empty, "").unwrap();
    let unread = |command: &mut Command| {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        command.stdout(writer.try_clone().unwrap()).stderr(writer).status().unwrap().code()
    };
    for words in [&["--help"][..], &["completions", "bash"], &["models"], &["backends", "--json"]] {
        assert_eq!(unread(foveate().args(words)), Some(0), "{words:?}");
    }
    assert_eq!(unread(foveate().args(["plan", "--from", "absent"])), Some(2));
    let out = folder.path().join("x.npy");
    assert_eq!(unread(embed(&out).args([PHOTOS, "--limit", "4"])), Some(0));
    assert!(out.exists());
    assert_eq!(unread(embed(&folder.path().join("y.npy")).arg(&empty)), Some(3));
    let verify = ["verify", PHOTOS, "--sample", "2", "--model", crate::common::TINY];
    assert_eq!(unread(foveate().args(verify)), Some(0));
}

#[test]
fn a_full_disk_behind_standard_output_is_told_and_leaves_a_complete_output_complete() {
    let folder = tempfile::tempdir().unwrap();
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let to_full = |command: &mut Command| {
        let ran = command.stdout(full()).stderr(Stdio::piped()).output().unwrap();
        (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
    };
    for more in [&[][..], &["--json"]] {
        let out = folder.path().join("x.npy");
        let (code, stderr) = to_full(embed(&out).args([PHOTOS, "--limit", "4", "--overwrite"]).args(more));
        assert_eq!(code, Some(0), "{stderr}");
        assert!(stderr.contains("warning: cannot print: No space left"), "{stderr}");
    }
    let (code, stderr) = to_full(foveate().arg("models"));
    assert_eq!((code, stderr.starts_with("error: cannot print: No space left")), (Some(1), true), "{stderr}");
}

/// With `-q`, only the signal itself prints.
#[test]
fn one_signal_stops_a_run_whose_standard_error_is_dead_or_blocked() {
    let folder = tempfile::tempdir().unwrap();
    let list = long_list(folder.path(), 2_000);
    let (reader, mut full_pipe) = io::pipe().unwrap();
    full_pipe.write_all(&[b'x'; 65_536]).unwrap();
    let full_disk = fs::File::options().write(true).open("/dev/full").unwrap();
    for (name, signal, quiet, stderr) in [
        ("a", "TERM", true, Stdio::from(full_disk)),
        ("b", "HUP", true, Stdio::from(full_pipe.try_clone().unwrap())),
        ("c", "INT", false, Stdio::from(full_pipe)),
    ] {
        let mut command = embed(&folder.path().join(name));
        command.args(["--recent-memory=off", "--from-list"]).arg(&list).args(quiet.then_some("-q"));
        command.stdout(Stdio::null()).stderr(stderr);
        let mut child = command.spawn().unwrap();
        wait_for_signal_handler(&mut child);
        let sent = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert_eq!(ended(child).code(), Some(130), "{signal}");
        let rest = run(embed(&folder.path().join(name)).arg("--from-list").arg(&list).args(["--dry-run", "--json"]));
        assert!(rest.expect(0).json()["left"].as_u64().unwrap() > 0, "it was stopped on its way");
    }
    drop(reader);
}

/// Waits until the process handles SIGHUP, SIGINT and SIGTERM.
fn wait_for_signal_handler(child: &mut Child) {
    const HANDLED: u64 = 1 | 1 << 1 | 1 << 14;
    let status = format!("/proc/{}/status", child.id());
    let caught = || {
        let status = fs::read_to_string(&status).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    };
    while caught() & HANDLED != HANDLED {
        assert!(child.try_wait().unwrap().is_none(), "it ended without handling signals");
        sleep(Duration::from_millis(2));
    }
}
