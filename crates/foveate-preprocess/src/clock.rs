use std::time::{Duration, Instant};

use foveate_core::Stage;

/// Records the time that each preprocessing stage takes.
pub trait StageClock {
    /// Runs `work` as one span of `stage`.
    fn time(&self, stage: Stage, work: &mut dyn FnMut());

    /// Records a span of this thread from `start` on, whose parts took `time` in all.
    fn span(&self, stage: Stage, start: Instant, time: Duration);

    /// Records a time measured elsewhere, for example by a device's own clock.
    fn record(&self, stage: Stage, time: Duration);

    /// Counts an image whose gray was [clipped](foveate_decode::Decoded::is_clipped).
    fn clipped(&self) {}
}

/// A clock that records nothing.
pub struct Untimed;

impl StageClock for Untimed {
    fn time(&self, _: Stage, work: &mut dyn FnMut()) {
        work();
    }

    fn span(&self, _: Stage, _: Instant, _: Duration) {}

    fn record(&self, _: Stage, _: Duration) {}
}

/// Times `work` as one span of `stage`.
pub(crate) fn timed<T>(clock: &dyn StageClock, stage: Stage, work: impl FnOnce() -> T) -> T {
    let mut work = Some(work);
    let mut done = None;
    clock.time(stage, &mut || done = work.take().map(|work| work()));
    done.unwrap_or_else(|| unreachable!("a clock does the work that it times"))
}
