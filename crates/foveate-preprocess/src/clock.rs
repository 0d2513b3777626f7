use std::time::Duration;

use foveate_core::Stage;

/// Is told what the stages of preprocessing cost.
pub trait StageClock {
    /// Does `work` as one span of `stage`.
    fn time(&self, stage: Stage, work: &mut dyn FnMut());

    /// Notes what somebody else measured: a device, by its own clock.
    fn record(&self, stage: Stage, time: Duration);
}

/// Measures nothing.
pub struct Untimed;

impl StageClock for Untimed {
    fn time(&self, _: Stage, work: &mut dyn FnMut()) {
        work();
    }

    fn record(&self, _: Stage, _: Duration) {}
}
