//! Finds threads that are stuck or dead, so that a health check can say so.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock;

/// Watches a service's threads: how long each has been busy with one item.
#[derive(Clone)]
pub(crate) struct Watchdog(Arc<WatchedThreads>);

struct WatchedThreads {
    epoch: Instant,
    threads: Mutex<Vec<Arc<WatchedThread>>>,
}

struct WatchedThread {
    thread: String,
    limit: Duration,
    /// Milliseconds since the epoch, plus 1; 0 while the thread waits for work.
    busy_since: AtomicU64,
}

/// One watched thread.
pub(crate) struct ThreadWatch {
    epoch: Instant,
    state: Arc<WatchedThread>,
}

/// Marks its thread as busy until it is dropped.
pub(crate) struct Busy<'a>(&'a ThreadWatch);

const DEAD: u64 = u64::MAX;

impl Watchdog {
    pub(crate) fn new() -> Self {
        Self(Arc::new(WatchedThreads { epoch: Instant::now(), threads: Mutex::default() }))
    }

    /// Watches a thread that should never be busy with one item for longer than `limit`.
    pub(crate) fn watch(&self, thread: impl Into<String>, limit: Duration) -> ThreadWatch {
        let state = Arc::new(WatchedThread { thread: thread.into(), limit, busy_since: AtomicU64::new(0) });
        lock(&self.0.threads).push(Arc::clone(&state));
        ThreadWatch { epoch: self.0.epoch, state }
    }

    /// Names the first thread that is stuck or dead.
    pub(crate) fn check(&self) -> Result<(), String> {
        let now = millis(self.0.epoch);
        let threads = lock(&self.0.threads);
        threads.iter().try_for_each(|thread| thread.check(now))
    }
}

fn millis(epoch: Instant) -> u64 {
    epoch.elapsed().as_millis() as u64 + 1
}

impl WatchedThread {
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

impl ThreadWatch {
    /// Begins one item.
    pub(crate) fn busy(&self) -> Busy<'_> {
        self.state.busy_since.store(millis(self.epoch), SeqCst);
        Busy(self)
    }

    /// Waits for something that is watched elsewhere or has a time limit of its own.
    pub(crate) fn pause<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.state.busy_since.store(0, SeqCst);
        let done = wait();
        self.state.busy_since.store(millis(self.epoch), SeqCst);
        done
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.state.busy_since.store(0, SeqCst);
    }
}

impl Drop for ThreadWatch {
    fn drop(&mut self) {
        self.state.busy_since.store(if std::thread::panicking() { DEAD } else { 0 }, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_busy_for_too_long_is_named() {
        let watchdog = Watchdog::new();
        let watch = watchdog.watch("process embed", Duration::ZERO);
        assert_eq!(watchdog.check(), Ok(()));
        let busy = watch.busy();
        std::thread::sleep(Duration::from_millis(5));
        assert!(watchdog.check().unwrap_err().starts_with("thread process embed has been busy"));
        watch.pause(|| assert_eq!(watchdog.check(), Ok(())));
        drop(busy);
        assert_eq!(watchdog.check(), Ok(()));
    }

    #[test]
    fn a_thread_that_panicked_is_dead() {
        let watchdog = Watchdog::new();
        let watch = watchdog.watch("download 3", Duration::ZERO);
        let died = std::thread::spawn(move || {
            let _watch = watch;
            panic!("on purpose");
        });
        assert!(died.join().is_err());
        assert_eq!(watchdog.check(), Err("thread download 3 died".to_owned()));
    }
}
