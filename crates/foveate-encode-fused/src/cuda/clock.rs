//! The device's clock, converted to the host's moments.

use std::time::{Duration, Instant};

use foveate_cuda::{CudaError, Device, Event, Stream};
use foveate_encode::EncodeSpans;

/// The events of a batch on the device.
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
        Ok(Self { copy_in: pair(device)?, forward: pair(device)?, copy_out: pair(device)? })
    }
}

/// Creates the events of a part's start and end.
fn pair(device: &Device) -> Result<[Event; 2], CudaError> {
    Ok([Event::new(device)?, Event::new(device)?])
}

/// Converts the device's timestamps to the host's moments.
///
/// The device measures only the time between two events, with 24 bits. So each batch is placed relative to the previous
/// one. The two clocks drift, so the host's own observations bound the result: a batch begins after the host asked for
/// it, and ends before the host saw its end.
pub(super) struct DeviceClock {
    /// The start of the last placed batch, on the device.
    event: Event,
    /// The same start, on the host.
    moment: Instant,
}

impl DeviceClock {
    pub(super) fn new(device: &Device) -> Result<Self, CudaError> {
        let event = Event::new(device)?;
        let stream = Stream::new(device)?;
        stream.record(&event)?;
        event.synchronize()?;
        Ok(Self { event, moment: Instant::now() })
    }

    /// Returns the spans of a batch that the host asked for at `asked` and whose end it saw at `seen`. Takes the event
    /// of the batch's start and leaves another in exchange.
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

/// Places the start of an operation that took `took`: not before the host asked for it, and above all not so late that
/// it ends after the host saw its end.
fn place(begin: Instant, took: Duration, asked: Instant, seen: Instant) -> Instant {
    let latest = seen.checked_sub(took).unwrap_or(begin);
    begin.max(asked).min(latest)
}

/// The device's clock has steps of half a microsecond, so an immediate successor may appear to come earlier.
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
