//! One timed run of a pipeline.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use foveate_core::{PixelBatch, VectorBuf, lock};
use foveate_encode::{
    Allocate, Batch, Collected, EncodeError, EncodeTimes, Encoder, EncoderSpec, Overlap, Place, Resident,
    host_allocator,
};
use foveate_pipeline::{Cancel, Pipeline};
use foveate_profile::card::CardUse;
use foveate_sink::{Existing, Failure, Published, Rows, RunManifest, SinkError, VectorSink, Watermark};
use serde::{Deserialize, Serialize};

use super::options::{FEWEST_BATCHES, LEAST_BATCHES};
use crate::wrap::overlap;
use crate::{CheckedSink, Lab, LabError, LentEncoder, PhotoSet, Setting};

/// The length of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Length {
    pub(super) images: u64,
    /// Images of a batch.
    pub(super) batch: u64,
    /// Seconds that the sample takes, estimated while warming up.
    pub(super) seconds: f64,
}

impl Length {
    /// Returns the length of a sample of `images`, from an earlier one of `ran` images that took `took` seconds.
    pub(super) fn of(images: u64, setting: &Setting, earlier: &TimedSample, (ran, took): (u64, f64)) -> Self {
        let seconds = took + (images as f64 - ran as f64) / earlier.overall;
        Self { images, batch: setting.batch as u64, seconds }
    }

    /// Returns about this `share` of the length, in whole batches; never less than the shortest sample.
    pub(super) fn shortened(self, share: f64) -> Self {
        let batches = ((self.images / self.batch) as f64 * share) as u64;
        let images = (batches.max(FEWEST_BATCHES) * self.batch).min(self.images);
        Self { images, seconds: self.seconds * images as f64 / self.images as f64, ..self }
    }

    pub(super) fn is_shortest(self) -> bool {
        self.images <= FEWEST_BATCHES * self.batch
    }
}

/// Returns the images of a sample of about `seconds`, estimated from an earlier one.
pub(super) fn images_for(seconds: f64, earlier: &TimedSample, setting: &Setting) -> u64 {
    let batches = (earlier.overall * seconds / setting.batch as f64).round() as u64;
    batches.max(LEAST_BATCHES) * setting.batch as u64
}

/// One run of the pipeline.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct TimedSample {
    /// Images per second in the steady state.
    pub(super) rate: f64,
    /// Images per second of the whole run. With few batches and some delays, `rate` may be far too high; this is never
    /// more than the real rate.
    pub(super) overall: f64,
    /// Utilization of the processor.
    pub(super) busy: Option<f64>,
    /// Utilization of the forward's cards, and their bytes in use.
    pub(super) device_busy: Option<f64>,
    pub(super) device_bytes: Option<u64>,
}

impl TimedSample {
    pub(super) fn cards(&self) -> Option<CardUse> {
        Some(CardUse { busy: self.device_busy?, memory_bytes: self.device_bytes? })
    }
}

/// Longest time before the timed part.
const MOST_BEFORE: Duration = Duration::from_secs(1);

/// The images of a run before and after the timed ones.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Around {
    /// Those that a store's first requests bring all at once. They are fewer where the job takes long for them, because
    /// then the store is not its limit.
    before: u64,
    /// Maximum images that the stages before the encoder may be ahead of it, with a margin.
    after: u64,
}

impl Around {
    /// Returns none for cold reads, because a photo that is read again is no longer cold.
    pub(super) fn of(lab: &Lab<'_>, setting: &Setting, encoder: &LentEncoder, cold: bool) -> Self {
        if cold {
            return Self::default();
        }
        let config = lab.rig.config(setting);
        let depth = encoder.clone().depth();
        let after = (config.batches_in_flight(depth) * config.batch + config.read_ahead_items()) as u64;
        Self { before: 0, after }
    }

    /// Returns the same for a run that reads the photos from where they are.
    pub(super) fn stored(self, photos: &PhotoSet, setting: &Setting) -> Result<Self, LabError> {
        Ok(Self { before: if photos.is_in_store() { setting.requests as u64 } else { 0 }, ..self })
    }
}

/// Runs the pipeline that `make` builds around `checked` until `images` images are timed. The run has more, and is
/// stopped before the last ones. Otherwise the last batches would be prepared while the first is encoded, and no stage
/// would work beside the encoder in the timed part.
pub(super) fn sample(
    lab: &Lab<'_>,
    checked: &CheckedSink,
    images: u64,
    around: Around,
    make: impl FnOnce(Box<dyn VectorSink>, u64) -> Result<Pipeline, LabError>,
) -> Result<TimedSample, LabError> {
    let clock = Arc::new(Mutex::new(SampleClock { images, before: around.before, ..SampleClock::default() }));
    let stops = [lab.cancel.clone(), Cancel::default()];
    let timed = SampleTimed { inner: checked.clone(), clock: Arc::clone(&clock), stops: stops.clone() };
    let mut pipeline = make(Box::new(timed), around.before + images + around.after)?;
    let mut encoders: Vec<Box<dyn Encoder>> = Vec::new();
    for inner in pipeline.encoders {
        encoders.push(Box::new(SampleTimed { inner, clock: Arc::clone(&clock), stops: stops.clone() }));
    }
    pipeline.encoders = encoders;
    let run = lab.carry_out_until(&stops[1], pipeline, checked, images)?;
    let rate = lock(&clock).rate();
    let rate = rate.ok_or_else(|| LabError::Work("a sample of a single batch has no rate".to_owned()))?;
    let device_busy = run.cards.map(|cards| cards.busy);
    let device_bytes = run.cards.map(|cards| cards.memory_bytes);
    Ok(TimedSample { rate, overall: run.rate, busy: run.cpu_busy, device_busy, device_bytes })
}

/// The times at which batches left the encoder and the pipeline.
#[derive(Debug, Default)]
struct SampleClock {
    /// Maximum number of images before those that are timed.
    before: u64,
    /// Time at which the first of them was encoded, and the numbers encoded and written.
    begun: Option<Instant>,
    encoded_before: u64,
    written_before: u64,
    /// Number of images that are timed; later ones are ignored.
    images: u64,
    /// Rows that left the encoder.
    encoded_rows: u64,
    encoded: EncodedEnds,
    written: EncodedEnds,
    /// Rows of the first batch written, and of all batches.
    first_rows: u64,
    rows: u64,
    /// Time spent in the output since the first batch.
    writing: Duration,
}

/// The times at which the first and the last of something ended.
#[derive(Clone, Copy, Debug, Default)]
struct EncodedEnds(Option<(Instant, Instant)>);

impl EncodedEnds {
    fn note(&mut self, now: Instant) {
        self.0 = Some((self.0.map_or(now, |(first, _)| first), now));
    }

    fn span(self) -> Duration {
        self.0.map_or(Duration::ZERO, |(first, last)| last - first)
    }
}

impl SampleClock {
    /// Records a batch, and tells whether it was the last timed one.
    fn encoded(&mut self, rows: u64) -> bool {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        if self.encoded_before < self.before && begun.elapsed() < MOST_BEFORE {
            self.encoded_before += rows;
            return false;
        }
        if self.encoded_rows < self.images {
            self.encoded.note(Instant::now());
        }
        self.encoded_rows += rows;
        self.encoded_rows >= self.images
    }

    fn wrote(&mut self, started: Instant, rows: u64) {
        if self.written_before < self.encoded_before {
            self.written_before += rows;
            return;
        }
        if self.rows >= self.images && rows > 0 {
            return;
        }
        let now = Instant::now();
        if self.written.0.is_some() {
            self.writing += now - started;
        } else {
            self.first_rows = rows;
        }
        if rows > 0 {
            self.rows += rows;
            self.written.note(now);
        }
    }

    /// Returns the images per second from the end of the first batch to the end of the last. Filling the pipeline,
    /// which a long job also does once, is not a cost of the stage that fills it. Batches may pile up before a delayed
    /// output and come out together; the encoder's times correct for that. The last commit comes after all of that; it
    /// counts if the output is the limit.
    fn rate(&self) -> Option<f64> {
        let seconds = self.written.span().max(self.encoded.span()).max(self.writing).as_secs_f64();
        (self.rows > self.first_rows && seconds > 0.0).then(|| (self.rows - self.first_rows) as f64 / seconds)
    }
}

/// Reports every batch that its stage has finished to a clock.
struct SampleTimed<T> {
    inner: T,
    clock: Arc<Mutex<SampleClock>>,
    /// The user's cancellation, and the one that stops the run.
    stops: [Cancel; 2],
}

impl SampleTimed<CheckedSink> {
    fn time<T>(&mut self, rows: u64, work: impl FnOnce(&mut CheckedSink) -> T) -> T {
        let started = Instant::now();
        let done = work(&mut self.inner);
        lock(&self.clock).wrote(started, rows);
        done
    }
}

impl VectorSink for SampleTimed<CheckedSink> {
    fn begin(&mut self, manifest: &RunManifest, existing: Existing) -> Result<Watermark, SinkError> {
        self.inner.begin(manifest, existing)
    }

    fn failures(&mut self) -> Result<u64, SinkError> {
        self.inner.failures()
    }

    fn append(&mut self, rows: &Rows<'_>) -> Result<(), SinkError> {
        self.time(rows.index.len() as u64, |sink| sink.append(rows))
    }

    fn fail(&mut self, failures: &[Failure]) -> Result<(), SinkError> {
        self.inner.fail(failures)
    }

    fn commit(&mut self, watermark: Watermark) -> Result<(), SinkError> {
        self.time(0, |sink| sink.commit(watermark))
    }

    fn finish(&mut self) -> Result<Published, SinkError> {
        self.inner.finish()
    }
}

impl Encoder for SampleTimed<Box<dyn Encoder>> {
    fn spec(&self) -> &EncoderSpec {
        self.inner.spec()
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        let times = self.inner.encode(batch, out);
        self.encoded(batch.len() as u64);
        times
    }

    fn resident(&mut self) -> Option<&mut dyn Resident> {
        self.inner.resident()
    }

    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        self.inner.overlap().is_some().then_some(self as _)
    }
}

impl Overlap for SampleTimed<Box<dyn Encoder>> {
    fn depth(&mut self) -> usize {
        self.inner.overlap().map_or(1, |inner| inner.depth())
    }

    fn allocator(&mut self, place: Place) -> Allocate {
        self.inner.overlap().map_or_else(host_allocator, |inner| inner.allocator(place))
    }

    fn submit(&mut self, batch: Batch) -> Result<(), EncodeError> {
        overlap(self.inner.as_mut())?.submit(batch)
    }

    fn collect(&mut self, out: &mut VectorBuf) -> Result<Collected, EncodeError> {
        let collected = overlap(self.inner.as_mut())?.collect(out)?;
        self.encoded(collected.batch.images as u64);
        Ok(collected)
    }
}

impl SampleTimed<Box<dyn Encoder>> {
    fn encoded(&self, images: u64) {
        let is_last = lock(&self.clock).encoded(images);
        let [asked, stop] = &self.stops;
        if is_last || asked.is_cancelled() {
            stop.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_batch_is_not_timed_and_neither_pile_ups_nor_slow_commits_are_missed() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let ends = |span| EncodedEnds(Some((start, start + ms(span))));
        let clock = |encoded, written, writing| SampleClock {
            encoded: ends(encoded),
            written: ends(written),
            first_rows: 8,
            rows: 24,
            images: 24,
            encoded_rows: 24,
            writing: ms(writing),
            ..SampleClock::default()
        };
        assert_eq!(clock(90, 100, 20).rate(), Some(160.0));
        assert_eq!(clock(100, 1, 1).rate(), Some(160.0), "came out together");
        assert_eq!(clock(90, 100, 200).rate(), Some(80.0), "bound by the output");
        assert_eq!(SampleClock { rows: 8, ..clock(0, 0, 0) }.rate(), None);
    }

    #[test]
    fn what_the_first_requests_bring_at_once_is_not_timed() {
        let mut clock = SampleClock { before: 12, images: 16, ..SampleClock::default() };
        let ends: Vec<bool> = (0..5).map(|_| clock.encoded(8)).collect();
        assert_eq!(ends, [false, false, false, true, true]);
        (0..4).for_each(|_| clock.wrote(Instant::now(), 8));
        assert_eq!((clock.rows, clock.first_rows), (16, 8));
        let long_ago = Instant::now().checked_sub(2 * MOST_BEFORE);
        let mut slow = SampleClock { before: 12, images: 16, begun: long_ago, ..SampleClock::default() };
        assert!(!slow.encoded(8) && slow.encoded(8), "all of them are timed");
    }
}
