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
