//! The job at one depth after the other, in rounds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foveate_core::{PixelBatch, VectorBuf};
use foveate_encode::{
    Allocate, Batch, Collected, EncodeError, EncodeTimes, Encoder, EncoderSpec, Overlap, Place, Resident,
    host_allocator,
};
use foveate_pipeline::{Cancel, Pipeline};
use foveate_sink::{Existing, Failure, Published, Rows, RunManifest, SinkError, VectorSink, Watermark};

use super::Options;
use super::depth::{Caches, Depth};
use super::interval::{Interval, median};
use crate::bench::rounds::order;
use crate::wrap::overlap;
use crate::{Cell, CheckedSink, Lab, LabError, LentEncoder, Output, PhotoSet, Setting, Table, schema, stats};

/// Batches that a sample has at least: the first one is not timed, two are the least that tell a rate.
const LEAST_BATCHES: u64 = 3;

/// What was measured at every depth.
#[derive(Clone, Debug)]
pub(super) struct Ladder {
    photos: String,
    rungs: Vec<Rung>,
    seed: u64,
    least_drop: f64,
}

/// What was measured at one depth.
#[derive(Clone, Debug)]
pub(super) struct Rung {
    pub(super) depth: Depth,
    images: u64,
    /// Images per second and share of the processor, a value a round.
    rates: Vec<f64>,
    busy: Vec<Option<f64>>,
    /// Why nothing was measured.
    skipped: Option<String>,
}

/// How much slower it is with one more stage at work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Drop {
    /// The depth whose stage was added.
    pub(super) depth: Depth,
    /// 1 − rate ÷ rate before.
    pub(super) part: Interval,
    /// Whether the interval lies above the least drop that matters.
    pub(super) significant: bool,
}

impl Ladder {
    /// Runs `setting` at every depth, `options.rounds` times, in an order that changes from round to round.
    pub(super) fn measure(
        lab: &Lab<'_>,
        photos: &PhotoSet,
        setting: &Setting,
        options: &Options,
    ) -> Result<Self, LabError> {
        lab.watch.doing("preparing what is cached");
        let mut probe = Probe::new(lab, photos, setting, options)?;
        let skipped = probe.caches.make_resident(&mut probe.encoder)?;
        let rung = |depth| Rung { depth, images: 0, rates: Vec::new(), busy: Vec::new(), skipped: None };
        let mut rungs: Vec<Rung> = Depth::ALL.map(rung).into();
        rungs[0].skipped = skipped;
        // The deepest first: its vectors are what the others are checked against.
        for rung in rungs.iter_mut().rev().filter(|rung| rung.skipped.is_none()) {
            lab.watch.doing(&format!("warming up, cached: {}", rung.depth.cached()));
            rung.images = probe.images(rung.depth)?;
        }
        for round in 0..options.rounds {
            for at in order(lab.seed, rungs.len(), round) {
                let rung = &mut rungs[at];
                if rung.skipped.is_some() {
                    continue;
                }
                lab.watch.doing(&format!("round {} of {}, cached: {}", round + 1, options.rounds, rung.depth.cached()));
                let sample = probe.sample(rung.depth, rung.images)?;
                rung.rates.push(sample.rate);
                rung.busy.push(sample.busy);
            }
        }
        Ok(Self { photos: photos.name.clone(), rungs, seed: lab.seed, least_drop: options.least_drop })
    }

    /// With these rates at each depth, a value a round.
    #[cfg(test)]
    pub(super) fn of(rates: [Vec<f64>; 7], busy: f64) -> Self {
        let rung = |(depth, rates): (Depth, Vec<f64>)| {
            let busy = rates.iter().map(|_| Some(busy)).collect();
            Rung { depth, images: 8, rates, busy, skipped: None }
        };
        let rungs = Depth::ALL.into_iter().zip(rates).map(rung).collect();
        Self { photos: "none".to_owned(), rungs, seed: 1, least_drop: 0.05 }
    }

    fn measured(&self) -> impl DoubleEndedIterator<Item = &Rung> {
        self.rungs.iter().filter(|rung| rung.skipped.is_none())
    }

    /// Whether nothing stays on a device: the forward runs on the cores that decode.
    pub(super) fn on_host(&self) -> bool {
        self.rungs[0].skipped.is_some()
    }

    /// The shallowest depth measured: the forward alone, or nearly.
    pub(super) fn reference(&self) -> &Rung {
        self.measured().next().unwrap_or(&self.rungs[0])
    }

    /// The job as it is.
    pub(super) fn whole(&self) -> &Rung {
        &self.rungs[self.rungs.len() - 1]
    }

    /// Median rate of a depth.
    pub(super) fn rate(&self, rung: &Rung) -> Interval {
        Interval::over_rounds(rung.rates.len(), self.seed, |rounds| median(&rung.rates, rounds))
    }

    fn drop_between(&self, before: &Rung, rung: &Rung) -> Interval {
        let part = |rounds: &[usize]| 1.0 - median(&rung.rates, rounds) / median(&before.rates, rounds);
        Interval::over_rounds(rung.rates.len(), self.seed, part)
    }

    /// What each stage costs, from one depth to the next.
    ///
    /// One that costs something works at every deeper depth, too, and at no shallower one: so the interval of a drop
    /// counts only when, by their medians, the job as it is is slower than the depth before as well, and the depth itself
    /// slower than the shallowest. Of six intervals one is off by chance now and then, but hardly ever with both.
    pub(super) fn drops(&self) -> Vec<Drop> {
        let pairs = self.measured().zip(self.measured().skip(1));
        let drop = |(before, rung): (&Rung, &Rung)| {
            let part = self.drop_between(before, rung);
            let others = [self.drop_between(before, self.whole()), self.drop_between(self.reference(), rung)];
            let confirmed = others.iter().all(|part| part.value > self.least_drop);
            Drop { depth: rung.depth, part, significant: confirmed && part.low > self.least_drop }
        };
        pairs.map(drop).collect()
    }

    /// The depth before `depth` and its median rate, and that of `depth`.
    pub(super) fn around(&self, depth: Depth) -> ((Depth, f64), f64) {
        let rate = |rung: &Rung| (rung.depth, self.rate(rung).value);
        let before = self.measured().take_while(|rung| rung.depth < depth).last().unwrap_or(self.reference());
        let at = self.measured().find(|rung| rung.depth == depth).unwrap_or(self.whole());
        (rate(before), rate(at).1)
    }

    /// What all of them cost together.
    pub(super) fn whole_drop(&self) -> Interval {
        self.drop_between(self.reference(), self.whole())
    }

    /// The rows of [`schema::DIAGNOSIS`].
    pub(super) fn table(&self, culprit: Option<Depth>) -> Table {
        let mut table = Table::new(&schema::DIAGNOSIS);
        let drops = self.drops();
        for (at, rung) in self.rungs.iter().enumerate() {
            table.push([
                ("photos", self.photos.as_str().into()),
                ("depth", at.into()),
                ("cached", rung.depth.cached().into()),
                ("adds", rung.depth.adds().into()),
                ("culprit", (culprit == Some(rung.depth)).into()),
            ]);
            let mut set = |name: &str, value: Cell| table.set(at, name, value);
            if let Some(reason) = &rung.skipped {
                set("status", format!("n/a ({reason})").into());
                continue;
            }
            let rate = self.rate(rung);
            set("status", "ok".into());
            set("images", rung.images.into());
            set("samples", rung.rates.len().into());
            set("images_per_second", rate.value.into());
            set("low", rate.low.into());
            set("high", rate.high.into());
            set("cpu_busy", rung.cpu_busy().map_or(Cell::Empty, Cell::from));
            if let Some(drop) = drops.iter().find(|drop| drop.depth == rung.depth) {
                set("drop", drop.part.value.into());
                set("drop_low", drop.part.low.into());
                set("drop_high", drop.part.high.into());
                set("significant", drop.significant.into());
            }
        }
        table
    }
}

impl Rung {
    /// Median share of the processor that was at work, where the system tells.
    pub(super) fn cpu_busy(&self) -> Option<f64> {
        let busy: Option<Vec<f64>> = self.busy.iter().copied().collect();
        stats::quantile(&busy?, 0.5)
    }
}

/// Runs the job at a depth.
struct Probe<'a> {
    lab: &'a Lab<'a>,
    photos: &'a PhotoSet,
    setting: &'a Setting,
    options: &'a Options,
    caches: Caches,
    encoder: LentEncoder,
    /// Knows every photo's vector once the job ran as it is.
    expected: CheckedSink,
}

impl<'a> Probe<'a> {
    fn new(
        lab: &'a Lab<'a>,
        photos: &'a PhotoSet,
        setting: &'a Setting,
        options: &'a Options,
    ) -> Result<Self, LabError> {
        let caches = Caches::fill(lab, photos, setting)?;
        let encoder = lab.encoder(setting)?;
        let expected = lab.sink(&Output::Discard, photos)?;
        Ok(Self { lab, photos, setting, options, caches, encoder, expected })
    }

    /// Images of a sample of the wished length at `depth`, from a short one that also warms it up.
    fn images(&mut self, depth: Depth) -> Result<u64, LabError> {
        let batch = self.setting.batch as u64;
        // Every photo once, where that is how its vector becomes known.
        let once = if depth == Depth::Nothing { (self.photos.photos.len() as u64).div_ceil(batch) } else { 0 };
        let first = self.sample(depth, once.max(LEAST_BATCHES) * batch)?;
        let images = images_for(self.options.seconds, &first, self.setting);
        if depth == Depth::Nothing { self.options.images_stored(images, self.photos, self.setting) } else { Ok(images) }
    }

    fn sample(&mut self, depth: Depth, images: u64) -> Result<Sample, LabError> {
        let checked = self.sink(depth)?;
        match depth {
            Depth::OnDevice => self.caches.make_resident(&mut self.encoder).map(|_| ())?,
            Depth::Nothing if self.options.cold => self.photos.forget()?,
            _ => {}
        }
        let ahead = images_ahead(self.lab, self.setting, &self.encoder, self.options.cold);
        let sampled = sample(self.lab, &checked, images, ahead, |sink, images| {
            let source = self.photos.stored(images);
            let pipeline = self.lab.pipeline(self.setting, source, Box::new(self.encoder.clone()), sink);
            self.caches.put_into(pipeline, depth, images, &self.encoder)
        })?;
        if depth == Depth::Nothing {
            self.expected = checked;
        }
        Ok(sampled)
    }

    fn sink(&self, depth: Depth) -> Result<CheckedSink, LabError> {
        let output = if depth.writes() { Output::Sink(self.options.sink.clone()) } else { Output::Discard };
        let inner = self.lab.open_output(&output)?;
        // Of one batch over and over, what is in a slot is always the same.
        Ok(if depth.tells_photos() { self.expected.anew(inner) } else { CheckedSink::new(inner, self.setting.batch) })
    }
}

/// The fewest images that a sample can have.
pub(super) fn least_images(setting: &Setting) -> u64 {
    LEAST_BATCHES * setting.batch as u64
}

/// Images of a sample of about `seconds`, going by an earlier one.
pub(super) fn images_for(seconds: f64, earlier: &Sample, setting: &Setting) -> u64 {
    let batches = (earlier.overall * seconds / setting.batch as f64).round() as u64;
    batches.max(LEAST_BATCHES) * setting.batch as u64
}

/// One run of the pipeline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Images per second in the steady state.
    pub(super) rate: f64,
    /// Images per second of all of it. Of few batches, some held up, `rate` may be too high by much;
    /// this is never more than can be done.
    overall: f64,
    /// Share of the processor that was at work.
    busy: Option<f64>,
}

impl Options {
    /// `images` of a sample that reads stored photos; no more than there are where reads are to be cold.
    pub(super) fn images_stored(&self, images: u64, photos: &PhotoSet, setting: &Setting) -> Result<u64, LabError> {
        if !self.cold {
            return Ok(images);
        }
        let (photos, batch) = (photos.photos.len() as u64, setting.batch as u64);
        let once = images.min(photos / batch * batch);
        if once < LEAST_BATCHES * batch {
            let needed = LEAST_BATCHES * batch;
            return Err(LabError::Setting(format!(
                "cold reads need {needed} photos at this batch; there are {photos}"
            )));
        }
        Ok(once)
    }
}

/// Images that the stages before the encoder may be ahead of it, and some more; none where reads are to be cold: a photo
/// that is read again no longer is.
pub(super) fn images_ahead(lab: &Lab<'_>, setting: &Setting, encoder: &LentEncoder, cold: bool) -> u64 {
    if cold {
        return 0;
    }
    let (config, depth) = (lab.rig.config(setting), encoder.clone().depth());
    (config.batches_in_flight(depth) * config.batch + config.read_ahead_items()) as u64
}

/// Runs the pipeline that `make` makes around `checked` for so many images, until `images` of them are timed. The run has
/// `ahead` more, of which it is stopped: otherwise the last batches would have been prepared while the first was being
/// encoded, and nobody would be at work beside the encoder in the time that counts.
pub(super) fn sample(
    lab: &Lab<'_>,
    checked: &CheckedSink,
    images: u64,
    ahead: u64,
    make: impl FnOnce(Box<dyn VectorSink>, u64) -> Pipeline,
) -> Result<Sample, LabError> {
    let clock = Arc::new(Mutex::new(Clock { images, ..Clock::default() }));
    let stops = [lab.cancel.clone(), Cancel::default()];
    let timed = Timed { inner: checked.clone(), clock: Arc::clone(&clock), stops: stops.clone() };
    let mut pipeline = make(Box::new(timed), images + ahead);
    let timed = |inner| Timed { inner, clock: Arc::clone(&clock), stops: stops.clone() };
    pipeline.encoders = pipeline.encoders.into_iter().map(|encoder| Box::new(timed(encoder)) as _).collect();
    let run = lab.carry_out_until(&stops[1], pipeline, checked, images)?;
    let rate = lock(&clock).rate();
    let rate = rate.ok_or_else(|| LabError::Work("a sample of a single batch has no rate".to_owned()))?;
    Ok(Sample { rate, overall: run.rate, busy: run.cpu_busy })
}

/// When batches left the encoder and came out at the end of the pipeline.
#[derive(Debug, Default)]
struct Clock {
    /// How many are timed; what comes later is not looked at.
    images: u64,
    /// Rows that left the encoder.
    encoded_rows: u64,
    encoded: Ends,
    written: Ends,
    /// Rows of the first batch written, and of all.
    first_rows: u64,
    rows: u64,
    /// Spent in the output since the first batch.
    writing: Duration,
}

/// When the first and the last of something ended.
#[derive(Clone, Copy, Debug, Default)]
struct Ends(Option<(Instant, Instant)>);

impl Ends {
    fn note(&mut self, now: Instant) {
        self.0 = Some((self.0.map_or(now, |(first, _)| first), now));
    }

    fn span(self) -> Duration {
        self.0.map_or(Duration::ZERO, |(first, last)| last - first)
    }
}

impl Clock {
    /// Notes a batch, and says whether it was the last one that is timed.
    fn encoded(&mut self, rows: u64) -> bool {
        if self.encoded_rows < self.images {
            self.encoded.note(Instant::now());
        }
        self.encoded_rows += rows;
        self.encoded_rows >= self.images
    }

    fn wrote(&mut self, started: Instant, rows: u64) {
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

    /// Images per second from the end of the first batch to the end of the last, so that filling the pipeline, which a
    /// long job does once as well, does not count as a cost of whatever fills it. Batches may pile up before an output that
    /// was held up and come out together: by the encoder's clock they did not. The last commit comes after all of that; it
    /// counts where the output is what everything waits for.
    fn rate(&self) -> Option<f64> {
        let seconds = self.written.span().max(self.encoded.span()).max(self.writing).as_secs_f64();
        (self.rows > self.first_rows && seconds > 0.0).then(|| (self.rows - self.first_rows) as f64 / seconds)
    }
}

/// Tells a clock of every batch that the stage in it has done.
struct Timed<T> {
    inner: T,
    clock: Arc<Mutex<Clock>>,
    /// What the user asks to stop, and what stops the run.
    stops: [Cancel; 2],
}

impl Timed<CheckedSink> {
    fn time<T>(&mut self, rows: u64, work: impl FnOnce(&mut CheckedSink) -> T) -> T {
        let started = Instant::now();
        let done = work(&mut self.inner);
        lock(&self.clock).wrote(started, rows);
        done
    }
}

impl VectorSink for Timed<CheckedSink> {
    fn begin(&mut self, manifest: &RunManifest, existing: Existing) -> Result<Watermark, SinkError> {
        self.inner.begin(manifest, existing)
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

impl Encoder for Timed<Box<dyn Encoder>> {
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

impl Overlap for Timed<Box<dyn Encoder>> {
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

impl Timed<Box<dyn Encoder>> {
    fn encoded(&self, images: u64) {
        let is_last = lock(&self.clock).encoded(images);
        let [asked, stop] = &self.stops;
        if is_last || asked.is_cancelled() {
            stop.cancel();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_batch_is_not_timed_and_neither_pile_ups_nor_slow_commits_are_missed() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let ends = |span| Ends(Some((start, start + ms(span))));
        let clock = |encoded, written, writing| Clock {
            encoded: ends(encoded),
            written: ends(written),
            first_rows: 8,
            rows: 24,
            images: 24,
            encoded_rows: 24,
            writing: ms(writing),
        };
        assert_eq!(clock(90, 100, 20).rate(), Some(160.0));
        assert_eq!(clock(100, 1, 1).rate(), Some(160.0), "came out together");
        assert_eq!(clock(90, 100, 200).rate(), Some(80.0), "bound by the output");
        assert_eq!(Clock { rows: 8, ..clock(0, 0, 0) }.rate(), None);
    }
}
