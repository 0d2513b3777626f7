//! The device's clock, as moments of the host's.

use std::time::{Duration, Instant};

use foveate_cuda::{CudaError, Device, Event, Stream};
use foveate_encode::EncodeSpans;

/// The moments of a batch on the device.
pub(super) struct Marks {
    /// Begin and end.
    pub(super) copy_in: [Event; 2],
    /// Begin and end.
    pub(super) forward: [Event; 2],
    /// Begin and end.
    pub(super) copy_out: [Event; 2],
}

impl Marks {
    pub(super) fn new(device: &Device) -> Result<Self, CudaError> {
        let pair = || Ok([Event::new(device)?, Event::new(device)?]);
        Ok(Self { copy_in: pair()?, forward: pair()?, copy_out: pair()? })
    }
}

/// Places what a device did among the host's moments.
///
/// The device tells only how long after another one something happened, with 24 bits. So each batch is placed by the one
/// before it, and what the host knows holds it there, since the two clocks drift: nothing was done before the host asked
/// for it, and nothing after it saw the end.
pub(super) struct Clock {
    /// When the last batch that was placed began, by the device.
    event: Event,
    /// When that was, by the host.
    moment: Instant,
}

impl Clock {
    pub(super) fn new(device: &Device) -> Result<Self, CudaError> {
        let (event, stream) = (Event::new(device)?, Stream::new(device)?);
        stream.record(&event)?;
        event.synchronize()?;
        Ok(Self { event, moment: Instant::now() })
    }

    /// The spans of a batch that was `asked` for then and whose end the host has `seen` then. Takes the event of its begin
    /// and gives one in exchange.
    pub(super) fn spans(&mut self, marks: &mut Marks, asked: Instant, seen: Instant) -> Result<EncodeSpans, CudaError> {
        let begin = marks.copy_in[0].seconds_since(&self.event)?;
        let since = |event: &Event| Ok(duration(event.seconds_since(&marks.copy_in[0])?));
        let copy_in = since(&marks.copy_in[1])?;
        let forward = [since(&marks.forward[0])?, since(&marks.forward[1])?];
        let copy_out = [since(&marks.copy_out[0])?, since(&marks.copy_out[1])?];
        let moment = place(self.moment + duration(begin), copy_out[1], asked, seen);
        std::mem::swap(&mut self.event, &mut marks.copy_in[0]);
        self.moment = moment;
        Ok(EncodeSpans {
            copy_in: (moment, copy_in),
            forward: (moment + forward[0], forward[1].saturating_sub(forward[0])),
            copy_out: (moment + copy_out[0], copy_out[1].saturating_sub(copy_out[0])),
        })
    }
}

/// Where something that took so long began: not before it was asked for, and above all not so late that it ends after it
/// was seen to have ended.
fn place(begin: Instant, took: Duration, asked: Instant, seen: Instant) -> Instant {
    let latest = seen.checked_sub(took).unwrap_or(begin);
    begin.max(asked).min(latest)
}

/// The device's clock has steps of half a microsecond, so what follows at once may seem to come before.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_lies_between_its_submission_and_its_end() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let took = Duration::from_millis(10);
        assert_eq!(place(at(5), took, at(2), at(20)), at(5), "as the device says");
        assert_eq!(place(at(1), took, at(2), at(20)), at(2), "not before it was asked for");
        assert_eq!(place(at(15), took, at(2), at(20)), at(10), "over before it was seen");
        assert_eq!(place(at(1), took, at(12), at(20)), at(10), "what was seen counts more");
        assert_eq!(duration(-1e-7), Duration::ZERO);
    }
}
