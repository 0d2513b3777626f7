//! The phases of a worker's shutdown.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The interval at which a sleeping thread checks for the worker's stop.
const TICK: Duration = Duration::from_millis(20);

/// A worker runs, then stops (it receives no more messages and finishes those that it holds), then has ended (it gives
/// the rest back).
#[derive(Default)]
pub(super) struct Lifecycle {
    stopping: AtomicBool,
    ended: AtomicBool,
}

impl Lifecycle {
    pub(super) fn stop(&self) {
        self.stopping.store(true, SeqCst);
    }

    pub(super) fn end(&self) {
        self.ended.store(true, SeqCst);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(SeqCst)
    }

    /// Sleeps for `time`, or until the worker stops.
    pub(super) fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_stopping() && Instant::now() < until {
            std::thread::sleep(TICK.min(time));
        }
    }
}
