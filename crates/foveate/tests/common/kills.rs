//! Jobs that are killed and continued.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::run;

pub(crate) fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

pub(crate) fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Kills a job that writes to `folder` at random moments until `kills` have hit it alive, then lets it finish. `job`
/// gets the number of hits so far. The moments start at the job's first write and scale with the duration of a `whole`
/// run, so that they spread over all of it.
pub(crate) fn kill_until_done(folder: &Path, whole: Duration, kills: u32, job: impl Fn(u32) -> Command) {
    let mut random: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut hits = 0;
    while hits < kills {
        let mut child = start(&mut job(hits));
        let share = next_random(&mut random) % 1000;
        sleep(whole.mul_f64(share as f64 / 1000.0 / 4.0));
        signal(&child, "KILL");
        if child.wait().unwrap().success() {
            // The job finished before the signal came: start over.
            fs::remove_dir_all(folder).unwrap();
            fs::create_dir(folder).unwrap();
        } else {
            hits += 1;
        }
    }
    run(&mut job(0)).expect(0);
}

/// The names of what a run that writes to a folder has committed.
pub(crate) fn committed(output: &Path) -> Vec<String> {
    let entries = fs::read_dir(output.join(".foveate/run")).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.retain(|name| name.starts_with("part-") && name.ends_with(".seg"));
    names.sort();
    names
}

/// Random moments of a run that takes `whole`.
pub(crate) fn random_moments(whole: Duration) -> impl Iterator<Item = Duration> {
    let mut random: u64 = 0x9E37_79B9_7F4A_7C15;
    std::iter::repeat_with(move || whole.mul_f64((next_random(&mut random) % 1000) as f64 / 1000.0))
}

/// Steps xorshift. The moments differ between iterations of a test's loop, and are the same in every run of the test.
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}
