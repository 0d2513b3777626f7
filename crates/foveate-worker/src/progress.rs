//! Finds threads that are stuck, so that a health check can say so.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock;

/// The work that threads have taken and not finished.
#[derive(Default)]
pub(crate) struct ThreadProgress(Mutex<Work>);

#[derive(Default)]
struct Work {
    items: usize,
    /// The time at which the last one was finished, or the first one begun.
    since: Option<Instant>,
}

/// Items that a thread works on, until it is dropped.
pub(crate) struct Busy<'a> {
    progress: &'a ThreadProgress,
    items: usize,
}

impl ThreadProgress {
    /// Takes items.
    pub(crate) fn begin(&self, items: usize) -> Busy<'_> {
        let mut work = lock(&self.0);
        if work.items == 0 {
            work.since = Some(Instant::now());
        }
        work.items += items;
        Busy { progress: self, items }
    }

    /// Checks that items were finished within `limit`.
    pub(crate) fn check(&self, limit: Duration) -> Result<(), String> {
        let work = lock(&self.0);
        let idle = work.since.map_or(Duration::ZERO, |since| since.elapsed());
        if work.items == 0 || idle <= limit {
            return Ok(());
        }
        let (items, seconds) = (work.items, idle.as_secs());
        Err(format!(
            "threads work on {items} items, and finished none for {seconds} s, longer than {} s",
            limit.as_secs()
        ))
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut work = lock(&self.progress.0);
        work.items -= self.items;
        // A panic finishes nothing.
        if !std::thread::panicking() {
            work.since = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_is_not_finished_for_too_long_is_told() {
        let progress = ThreadProgress::default();
        assert_eq!(progress.check(Duration::ZERO), Ok(()));
        let busy = progress.begin(3);
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(progress.check(Duration::from_secs(60)), Ok(()));
        assert!(progress.check(Duration::ZERO).unwrap_err().starts_with("threads work on 3 items"));
        drop(busy);
        assert_eq!(progress.check(Duration::ZERO), Ok(()));
    }
}
