//! Knows which threads are busy, and for how long: a service that is stuck must say so.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock;

/// The pulses of a program's threads.
#[derive(Clone)]
pub(crate) struct Pulses(Arc<Inner>);

struct Inner {
    epoch: Instant,
    all: Mutex<Vec<Arc<State>>>,
}

struct State {
    thread: String,
    limit: Duration,
    /// Milliseconds after the epoch, plus 1; 0 while it waits for work.
    busy_since: AtomicU64,
}

/// One thread's.
pub(crate) struct Pulse {
    epoch: Instant,
    state: Arc<State>,
}

/// The thread is busy until this is dropped.
pub(crate) struct Beat<'a>(&'a Pulse);

const DEAD: u64 = u64::MAX;

impl Pulses {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner { epoch: Instant::now(), all: Mutex::default() }))
    }

    /// A pulse for a thread that should never be busy with one thing for longer than `limit`.
    pub(crate) fn pulse(&self, thread: impl Into<String>, limit: Duration) -> Pulse {
        let state = Arc::new(State { thread: thread.into(), limit, busy_since: AtomicU64::new(0) });
        lock(&self.0.all).push(Arc::clone(&state));
        Pulse { epoch: self.0.epoch, state }
    }

    /// The first thread that is stuck or dead.
    pub(crate) fn check(&self) -> Result<(), String> {
        let now = millis(self.0.epoch);
        let all = lock(&self.0.all);
        all.iter().try_for_each(|state| state.check(now))
    }
}

fn millis(epoch: Instant) -> u64 {
    epoch.elapsed().as_millis() as u64 + 1
}

impl State {
    fn check(&self, now: u64) -> Result<(), String> {
        let Self { thread, limit, busy_since } = self;
        match busy_since.load(SeqCst) {
            0 => Ok(()),
            DEAD => Err(format!("thread {thread} died")),
            since if now.saturating_sub(since) <= limit.as_millis() as u64 => Ok(()),
            since => Err(format!(
                "thread {thread} has been busy with one thing for {} s, longer than {} s",
                (now - since) / 1_000,
                limit.as_secs()
            )),
        }
    }
}

impl Pulse {
    /// Begins something.
    pub(crate) fn beat(&self) -> Beat<'_> {
        self.state.busy_since.store(millis(self.epoch), SeqCst);
        Beat(self)
    }

    /// Waits for something that has a pulse of its own, or a limit.
    pub(crate) fn pause<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.state.busy_since.store(0, SeqCst);
        let done = wait();
        self.state.busy_since.store(millis(self.epoch), SeqCst);
        done
    }
}

impl Drop for Beat<'_> {
    fn drop(&mut self) {
        self.0.state.busy_since.store(0, SeqCst);
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.state.busy_since.store(if std::thread::panicking() { DEAD } else { 0 }, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_busy_for_too_long_is_named() {
        let pulses = Pulses::new();
        let pulse = pulses.pulse("process embed", Duration::ZERO);
        assert_eq!(pulses.check(), Ok(()));
        let beat = pulse.beat();
        std::thread::sleep(Duration::from_millis(5));
        assert!(pulses.check().unwrap_err().starts_with("thread process embed has been busy"));
        pulse.pause(|| assert_eq!(pulses.check(), Ok(())));
        drop(beat);
        assert_eq!(pulses.check(), Ok(()));
    }

    #[test]
    fn a_thread_that_panicked_is_missed() {
        let pulses = Pulses::new();
        let pulse = pulses.pulse("download 3", Duration::ZERO);
        let died = std::thread::spawn(move || {
            let _pulse = pulse;
            panic!("on purpose");
        });
        assert!(died.join().is_err());
        assert_eq!(pulses.check(), Err("thread download 3 died".to_owned()));
    }
}
