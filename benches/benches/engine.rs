//! The engine's own cost: a million raw 32×32 images through stages that do almost nothing. The bench checks that every
//! row is stored with its own vector, and shows resident memory during the run.
//!
//! `cargo bench -p foveate-benches --bench engine [-- ITEMS]`

// A bench prints its table.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use foveate_benches::{processor_time, resident_bytes};
use foveate_core::Size;
use foveate_pipeline::{Cancel, Progress, RunReport, synthetic};
use foveate_sink::{Existing, RunManifest};

const SIZE: Size = Size::square(32);
const MARKS: [u64; 3] = [10, 50, 100];

fn main() {
    let items = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(1_000_000);
    println!("{items} raw images of {SIZE}, synthetic stages");
    println!("workers batch |  images/s  µs/image  cpu µs/image | resident MB at 10 %, 50 %, 100 %");
    for (workers, batch) in [(0, 32), (1, 32), (2, 32), (2, 128), (8, 32)] {
        let cell = measure(items, workers, batch);
        let seconds = cell.report.wall.as_secs_f64();
        let cpu = cell.cpu.map_or(f64::NAN, |cpu| cpu.as_secs_f64() / items as f64 * 1e6);
        let [at10, at50, at100] = cell.resident.map(|bytes| bytes as f64 / 1e6);
        println!(
            "{workers:>7} {batch:>5} | {:>9.0} {:>9.2} {cpu:>13.2} | {at10:.1} {at50:.1} {at100:.1}",
            items as f64 / seconds,
            seconds / items as f64 * 1e6,
        );
    }
}

struct Cell {
    report: RunReport,
    cpu: Option<Duration>,
    resident: [u64; 3],
}

fn measure(items: u64, workers: usize, batch: usize) -> Cell {
    let stored = Arc::new(AtomicU64::new(0));
    let mut pipeline = synthetic::pipeline(items, SIZE, &stored);
    (pipeline.config.workers, pipeline.config.batch) = (workers, batch);
    let (progress, done) = (Progress::default(), AtomicBool::new(false));
    let before = processor_time();
    let (report, resident) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch_memory(items, &progress, &done));
        let run = pipeline.run(&RunManifest::default(), Existing::Refuse, &Cancel::default(), &progress);
        done.store(true, Ordering::SeqCst);
        (run.expect("synthetic stages do not fail"), watcher.join().expect("the watcher does not panic"))
    });
    assert_eq!(stored.load(Ordering::Relaxed), items, "every item is stored once");
    let cpu = before.zip(processor_time()).map(|(before, after)| after - before);
    Cell { report, cpu, resident }
}

/// Resident memory when 10, 50 and 100 % of the items are stored.
fn watch_memory(items: u64, progress: &Progress, done: &AtomicBool) -> [u64; 3] {
    MARKS.map(|mark| {
        let started = Instant::now();
        while progress.rows.load(Ordering::Relaxed) < items * mark / 100 && !done.load(Ordering::SeqCst) {
            assert!(started.elapsed() < Duration::from_secs(600), "the engine stands still");
            std::thread::sleep(Duration::from_millis(1));
        }
        resident_bytes().unwrap_or(0)
    })
}
