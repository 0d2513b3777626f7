//! Interruptions: SIGKILL at random moments, Ctrl-C, a full disk. In every case, running the same command again gives
//! the bytes of an uninterrupted run.
#![cfg(unix)]
use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::kills::{committed, kill_until_done, signal, start};
use crate::common::{assert_same_tree, embed, long_list, run};
use foveate_testkit::by_length;

/// Returns a job that is long enough for many interruptions: parts of 32, batches of 4.
fn job(output: &Path, list: &Path) -> Command {
    let mut command = embed(output);
    command.arg("--from-list").arg(list).args(["--part-items=32", "--batch=4", "--recent-memory=off", "--json"]);
    command
}

/// Runs with one, two or three encoders continue each other's work. `cargo xtask faults` kills runs at every call that
/// changes the disk, for every kind of output.
#[test]
fn sigkill_and_another_number_of_devices_change_nothing() {
    const DEVICES: [&str; 3] = ["cpu,cpu,cpu", "cpu", "cpu,cpu"];
    let folder = tempfile::tempdir().unwrap();
    let list = long_list(folder.path(), 400);
    let (calm, wild) = (folder.path().join("calm"), folder.path().join("wild"));
    fs::create_dir(&calm).unwrap();
    fs::create_dir(&wild).unwrap();
    let started = Instant::now();
    run(&mut job(&calm.join("out"), &list)).expect(0);
    let on = |hit: u32| {
        let mut command = job(&wild.join("out"), &list);
        command.args(["--device", DEVICES[hit as usize % DEVICES.len()]]);
        command
    };
    kill_until_done(&wild, started.elapsed(), by_length(4, 12), on);
    assert_same_tree(&calm, &wild);
}

#[test]
fn ctrl_c_commits_says_how_to_resume_and_the_same_command_does() {
    let folder = tempfile::tempdir().unwrap();
    let list = long_list(folder.path(), 400);
    let (calm, wild) = (folder.path().join("calm"), folder.path().join("wild"));
    run(&mut job(&calm, &list)).expect(0);
    for name in ["INT", "TERM"] {
        let more = ["--part-items=32", "--batch=4", "--recent-memory=off"];
        let child = start(embed(&wild).arg("--from-list").arg(&list).args(more));
        wait_for_rows(&wild, &child);
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(130), "{stdout}");
        assert!(stdout.contains("run the same command again to continue"), "{stdout}");
    }
    let resumed = run(&mut job(&wild, &list)).expect(0).json();
    assert!(resumed["session"]["resumed"].as_u64().unwrap() > 0, "{resumed}");
    assert_same_tree(&calm, &wild);
}

/// Waits until the run has stored something.
fn wait_for_rows(output: &Path, child: &Child) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let before = committed(output);
    while committed(output) == before {
        assert!(Instant::now() < deadline, "process {} writes nothing", child.id());
        sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_file_system_that_fills_up_stops_the_run_and_resuming_completes_it() {
    let folder = tempfile::tempdir().unwrap();
    let list = long_list(folder.path(), 200);
    let (calm, wild) = (folder.path().join("calm"), folder.path().join("wild"));
    fs::create_dir(&calm).unwrap();
    fs::create_dir(&wild).unwrap();
    run(&mut job(&calm.join("x.npy"), &list)).expect(0);
    // Files cannot grow beyond 20 KiB. With the signal ignored, writing fails as on a full disk.
    let limited = job(&wild.join("x.npy"), &list);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "trap '' XFSZ; ulimit -f 40; exec \"$0\" \"$@\""])
        .arg(limited.get_program())
        .args(limited.get_args());
    run(&mut shell).expect_error(1, "x.npy");
    assert!(!wild.join("x.npy").exists(), "nothing under the final name");
    run(&mut job(&wild.join("x.npy"), &list)).expect(0);
    assert_same_tree(&calm, &wild);
}
