//! Memory does not grow with the number of inputs: a million small images through the real engine.
#![cfg(target_os = "linux")]
// A test reports by panicking.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use foveate::pipeline::{Cancel, Progress};
use foveate::profile::process::resident_bytes;
use foveate::sink::{Existing, RunManifest};
use foveate_core::Size;
use foveate_pipeline::synthetic;

const ITEMS: u64 = 1_000_000;
/// Tolerance for the allocator. A leak of five bytes per item would exceed it.
const SLACK: u64 = 4_000_000;

#[test]
fn a_million_items_take_no_more_memory_than_a_tenth_of_them() {
    let stored = Arc::new(AtomicU64::new(0));
    let mut pipeline = synthetic::pipeline(ITEMS, Size::square(32), &stored);
    // Full long before a tenth of the items.
    (pipeline.config.workers, pipeline.config.recent_bytes) = (2, 8 << 20);
    let (progress, done) = (Progress::default(), AtomicBool::new(false));
    let seen = thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&progress, &done));
        let report = pipeline.run(&RunManifest::default(), Existing::Refuse, &Cancel::default(), &progress);
        done.store(true, Ordering::SeqCst);
        assert_eq!(report.unwrap().rows, ITEMS);
        watcher.join().unwrap()
    });
    let [at10, at50, at100] = seen;
    println!("resident bytes at 10 %, 50 %, 100 %: {at10} {at50} {at100}");
    assert!(at50 <= at10 + SLACK && at100 <= at10 + SLACK, "{seen:?}");
}

/// Resident memory when 10, 50 and 100 % are stored.
fn watch(progress: &Progress, done: &AtomicBool) -> [u64; 3] {
    [10, 50, 100].map(|percent| {
        while progress.rows.load(Ordering::Relaxed) < ITEMS * percent / 100 && !done.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        resident_bytes().unwrap()
    })
}
