use std::time::Duration;

use foveate_core::Stage;

/// Records the time that each preprocessing stage takes.
pub trait StageClock {
    /// Runs `work` as one span of `stage`.
    fn time(&self, stage: Stage, work: &mut dyn FnMut());

    /// Records a time measured elsewhere, for example by a device's own clock.
    fn record(&self, stage: Stage, time: Duration);
}

/// A clock that records nothing.
pub struct Untimed;

impl StageClock for Untimed {
    fn time(&self, _: Stage, work: &mut dyn FnMut()) {
        work();
    }

    fn record(&self, _: Stage, _: Duration) {}
}

/// Times `work` as one span of `stage`.
pub(crate) fn timed<T>(clock: &dyn StageClock, stage: Stage, work: impl FnOnce() -> T) -> T {
    let (mut work, mut done) = (Some(work), None);
    clock.time(stage, &mut || done = work.take().map(|work| work()));
    done.unwrap_or_else(|| unreachable!("a clock does the work that it times"))
}
