//! Two workers on one queue for half an hour: mixed jobs, a SIGKILL of one worker every minute, and one restart of the
//! broker. Every job has one outcome, and the memory of the worker that lives all the time stays flat.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::scene::{AttackBench, SceneQueue};
use super::table::{HONEST_HOSTS, RECEIVER, SceneBroker};

/// Jobs that are queued together, and the time between two such batches.
const JOBS: usize = 100;
const PAUSE: Duration = Duration::from_secs(2);
const MINUTE: Duration = Duration::from_secs(60);
/// Time of the broker without its server.
const BROKER_AWAY: Duration = Duration::from_secs(3);
/// Jobs that a restart delays wait for a lease, and for retries that take up to minutes.
const PATIENCE: Duration = Duration::from_secs(600);
/// Growth of the steady worker from the first to the last quarter that still counts as flat.
const FLAT: f64 = 1.1;

/// A row of the CSV file: the state at a minute's end, before the kill.
#[derive(Serialize)]
struct SoakMinute {
    minute: usize,
    sent: usize,
    answered: usize,
    /// Callbacks beyond the first of each job.
    repeated: usize,
    /// Resident memory of the worker that lives all the time, and of the one that is killed.
    steady_mib: f64,
    killed_mib: f64,
}

pub(super) fn run(bench: &mut AttackBench, minutes: usize, csv: &Path) -> Result<()> {
    let queue = bench.queue(SceneBroker::Nats);
    let mut table = csv::Writer::from_path(csv).with_context(|| format!("cannot make {}", csv.display()))?;
    let mut steady = bench.worker(&queue, "steady", &[])?;
    let mut killed = bench.worker(&queue, "killed-0", &[])?;
    let mut sent = 0;
    let mut memory = Vec::new();
    let start = Instant::now();
    for minute in 1..=minutes {
        while start.elapsed() < MINUTE * u32::try_from(minute)? {
            send(bench, &queue, sent)?;
            sent += JOBS;
            sleep(PAUSE);
            steady.check()?;
            killed.check()?;
        }
        let record = bench.site.record();
        let row = SoakMinute {
            minute,
            sent,
            answered: record.answered.len(),
            repeated: record.answered.values().map(|job| job.times - 1).sum(),
            steady_mib: steady.memory_mib("VmRSS")?.round(),
            killed_mib: killed.memory_mib("VmRSS")?.round(),
        };
        drop(record);
        println!(
            "minute {minute}: {sent} sent, {} answered and {} again, {:.0} and {:.0} MiB",
            row.answered, row.repeated, row.steady_mib, row.killed_mib
        );
        memory.push(row.steady_mib);
        table.serialize(&row)?;
        table.flush()?;
        drop(killed);
        if minute == minutes.div_ceil(2) {
            bench.nats.kill();
            sleep(BROKER_AWAY);
            bench.nats.restart();
        }
        killed = bench.worker(&queue, &format!("killed-{minute}"), &[])?;
    }
    let end = Instant::now() + PATIENCE;
    while bench.rest(&queue)?.open > 0 && Instant::now() < end {
        sleep(PAUSE);
    }
    drop((steady, killed));
    report(bench, &queue, sent, &memory)?;
    println!("{}", csv.display());
    Ok(())
}

/// Queues the jobs after number `sent`: of twenty, one is no photo, two are slow, and two have a receiver that fails at
/// times.
fn send(bench: &AttackBench, queue: &SceneQueue, sent: usize) -> Result<()> {
    let mut jobs = Vec::new();
    for n in sent..sent + JOBS {
        let path = match n % 20 {
            0 => "broken",
            1 | 2 => "slow",
            _ => "photo",
        };
        let callback = if matches!(n % 20, 3 | 4) { "flaky" } else { "callback" };
        let image = bench.site.url(HONEST_HOSTS[n % HONEST_HOSTS.len()], &format!("{path}/{n}"));
        jobs.push(AttackBench::job(&format!("job-{n}"), &image, &bench.site.url(RECEIVER, callback)));
    }
    bench.enqueue(queue, &jobs)
}

/// Checks that every job has one outcome, and compares the memory of the first and the last quarter.
fn report(bench: &AttackBench, queue: &SceneQueue, sent: usize, memory: &[f64]) -> Result<()> {
    let rest = bench.rest(queue)?;
    let record = bench.site.record();
    let mut missing = Vec::new();
    let mut twice = Vec::new();
    for n in 0..sent {
        let id = format!("job-{n}");
        match (record.answered.contains_key(&id), rest.dead.contains(&id)) {
            (false, false) => missing.push(id),
            (true, true) => twice.push(id),
            _ => {}
        }
    }
    let differing = record.answered.values().filter(|job| job.differs).count();
    let quarter = memory.len().div_ceil(4);
    let first = memory[..quarter].iter().sum::<f64>() / quarter as f64;
    let last = memory[memory.len() - quarter..].iter().sum::<f64>() / quarter as f64;
    println!(
        "{sent} jobs: {} answered, {} dead letters, {} open; memory from {first:.0} to {last:.0} MiB: {}",
        record.answered.len(),
        rest.dead.len(),
        rest.open,
        if last <= FLAT * first { "flat" } else { "missed, it grows" },
    );
    ensure!(missing.is_empty(), "{} jobs have no outcome: {}", missing.len(), missing.join(", "));
    ensure!(twice.is_empty(), "{} jobs were answered and are dead letters: {}", twice.len(), twice.join(", "));
    ensure!(differing == 0, "{differing} jobs have two results");
    Ok(())
}
