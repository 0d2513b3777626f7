//! Core time, next to wall time.

use std::time::{Duration, Instant};

use foveate_profile::process;

/// The time of a piece of work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Took {
    /// Seconds of wall time.
    pub(crate) seconds: f64,
    /// Seconds on a core, at most the wall time times the cores; equal to it if the system does not report core time.
    pub(crate) cpu_seconds: f64,
}

impl Took {
    /// Returns the milliseconds of wall time.
    pub(crate) fn ms(self) -> f64 {
        self.seconds * 1e3
    }
}

/// Times `work` on this thread.
pub(crate) fn on_this_thread<T>(work: impl FnOnce() -> T) -> (T, Took) {
    timed(process::thread_processor_time, 1.0, work)
}

/// Times `work`, and the core time of all threads of the process meanwhile.
pub(crate) fn on_all_threads<T>(cores: u32, work: impl FnOnce() -> T) -> (T, Took) {
    timed(process::processor_time, f64::from(cores), work)
}

fn timed<T>(clock: fn() -> Option<Duration>, cores: f64, work: impl FnOnce() -> T) -> (T, Took) {
    let started = Instant::now();
    let before = clock();
    let done = work();
    let after = clock();
    let seconds = started.elapsed().as_secs_f64();
    let on_core = after.zip(before).map_or(seconds, |(after, before)| after.saturating_sub(before).as_secs_f64());
    (done, Took { seconds, cpu_seconds: on_core.min(seconds * cores) })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn sleep_is_no_work_and_a_loop_is() {
        let ((), slept) = on_this_thread(|| std::thread::sleep(Duration::from_millis(30)));
        assert!(slept.seconds >= 0.03 && slept.cpu_seconds < 0.01, "{slept:?}");
        let ((), worked) = on_this_thread(|| {
            let before = process::thread_processor_time();
            while process::thread_processor_time()
                .zip(before)
                .is_some_and(|(now, before)| now - before < Duration::from_millis(20))
            {}
        });
        assert!(worked.cpu_seconds >= 0.02 && worked.seconds >= worked.cpu_seconds, "{worked:?}");
    }
}
