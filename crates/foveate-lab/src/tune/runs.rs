//! Runs that tuning compares.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use foveate_core::lock;
use foveate_encode::Encoder;
use foveate_sink::{Existing, Failure, Published, Rows, RunManifest, SinkError, VectorSink, Watermark};

use crate::{Calibration, CheckedSink, Lab, LabError, LentEncoder, Output, PhotoSet, Setting};

/// The source of measurements.
pub(super) trait Runs {
    /// Returns the costs of what `settings` mention.
    fn calibrate(&mut self, settings: &[Setting]) -> Result<Calibration, LabError>;

    /// Returns the images per second of a run of `images` images, for batches of up to `most_batch`.
    fn rate(&mut self, setting: &Setting, most_batch: usize, images: u64) -> Result<f64, LabError>;

    /// Returns the time since the beginning.
    fn elapsed(&self) -> Duration;
}

/// Runs of the real engine.
pub(super) struct LabRuns<'a> {
    lab: &'a Lab<'a>,
    photos: &'a PhotoSet,
    /// Encoders by name, precision and number of threads.
    encoders: BTreeMap<(String, &'static str, usize), LentEncoder>,
    started: Instant,
}

impl<'a> LabRuns<'a> {
    pub(super) fn new(lab: &'a Lab<'a>, photos: &'a PhotoSet) -> Self {
        Self { lab, photos, encoders: BTreeMap::new(), started: Instant::now() }
    }

    fn encoder(&mut self, setting: &Setting, most_batch: usize) -> Result<LentEncoder, LabError> {
        let key = (setting.encoder.clone(), setting.dtype.name(), setting.threads);
        if let Some(encoder) = self.encoders.get(&key).filter(|encoder| encoder.spec().max_batch >= most_batch) {
            return Ok(encoder.clone());
        }
        let encoder = self.lab.encoder(&Setting { batch: most_batch, ..setting.clone() })?;
        self.encoders.insert(key, encoder.clone());
        Ok(encoder)
    }
}

impl Runs for LabRuns<'_> {
    fn calibrate(&mut self, settings: &[Setting]) -> Result<Calibration, LabError> {
        Calibration::measure(self.lab, self.photos, settings)
    }

    /// Measures the rate from the first batch stored to the last: a long job has its start and end only once.
    fn rate(&mut self, setting: &Setting, most_batch: usize, images: u64) -> Result<f64, LabError> {
        let encoder = self.encoder(setting, most_batch)?;
        let sink = self.lab.sink(&Output::Discard, self.photos)?;
        let arrivals = Arrivals::default();
        let noted = NotedRuns { sink: sink.clone(), arrivals: arrivals.clone() };
        let source = self.photos.stored(setting, images)?;
        let pipeline = self.lab.pipeline(setting, source, Box::new(encoder), Box::new(noted));
        let run = self.lab.carry_out(pipeline, &sink, images)?;
        Ok(arrivals.rate().unwrap_or(run.rate))
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// The times at which rows came to the sink, and their number.
#[derive(Clone, Default)]
struct Arrivals(Arc<Mutex<Vec<(Instant, usize)>>>);

impl Arrivals {
    fn note(&self, rows: usize) {
        lock(&self.0).push((Instant::now(), rows));
    }

    /// Returns the rows per second after the first arrival.
    fn rate(&self) -> Option<f64> {
        let arrivals = lock(&self.0);
        let ((first, _), rest) = arrivals.split_first()?;
        let (last, _) = rest.last()?;
        let rows: usize = rest.iter().map(|(_, rows)| rows).sum();
        let seconds = last.duration_since(*first).as_secs_f64();
        (seconds > 0.0).then(|| rows as f64 / seconds)
    }
}

/// A sink that records when rows come.
struct NotedRuns {
    sink: CheckedSink,
    arrivals: Arrivals,
}

impl VectorSink for NotedRuns {
    fn begin(&mut self, manifest: &RunManifest, existing: Existing) -> Result<Watermark, SinkError> {
        self.sink.begin(manifest, existing)
    }

    fn failures(&mut self) -> Result<u64, SinkError> {
        self.sink.failures()
    }

    fn append(&mut self, rows: &Rows<'_>) -> Result<(), SinkError> {
        self.arrivals.note(rows.index.len());
        self.sink.append(rows)
    }

    fn fail(&mut self, failures: &[Failure]) -> Result<(), SinkError> {
        self.sink.fail(failures)
    }

    fn commit(&mut self, watermark: Watermark) -> Result<(), SinkError> {
        self.sink.commit(watermark)
    }

    fn finish(&mut self) -> Result<Published, SinkError> {
        self.sink.finish()
    }
}
