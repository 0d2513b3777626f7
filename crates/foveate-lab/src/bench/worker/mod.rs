//! The queue worker, with more and more of its stages in parallel.

mod encoders;
mod sample;
mod service;
mod watched;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use encoders::Stub;
use foveate_encode::Encoder as _;
use sample::{Forward, Sample};
pub use service::Service;
use service::{Configuration, ms};

use super::cells::{Attempt, Effort, Row, attempt, row, wrong};
use super::rounds;
use crate::stats::{Spread, median, quantile};
use crate::wrap::cosine;
use crate::{Lab, LabError, LentEncoder, PhotoSet, Setting, Table, schema};

/// Name of the encoder that sleeps.
const STUB: &str = "stub";
/// Minimum cosine between the vectors of the same photo: half precision may depend slightly on the batch.
const SAME: f64 = 0.999;

/// Measures four configurations: every stage in turn on one thread; downloads and callbacks on their own threads;
/// photos prepared while others are encoded; batches. Each is the same worker with other numbers of threads. They
/// alternate with each other, once with the rig's encoder and once with one that sleeps in place of a device.
///
/// Every photo comes from a [server](foveate_photo_server) on this machine, and every result is posted to it. A sample
/// counts if each message was delivered, downloaded, called back and acknowledged exactly once, with the first
/// configuration's vectors. They must match bit for bit if the encoder declares that it does not depend on the batch.
///
/// # Errors
/// [`LabError::Latency`] for invalid latencies; [`LabError::Interrupted`].
pub fn worker(lab: &Lab<'_>, photos: &PhotoSet, service: &Service, effort: &Effort) -> Result<Table, LabError> {
    service.check()?;
    let base = lab.rig.base();
    let subjects = [Subject::of_rig(lab, photos, service)?, Subject::stub(lab, photos, service)?];
    let all: Vec<(Attempt<Arc<Subject>>, Configuration)> = subjects
        .iter()
        .flat_map(|subject| Configuration::all(&base, service).map(|configuration| (subject.clone(), configuration)))
        .collect();
    let mut cells: Vec<Attempt<Cell>> = Vec::new();
    for (subject, configuration) in &all {
        let begun = subject.clone().map(|subject| Cell::new(lab, photos, service, effort, subject, *configuration));
        cells.push(begun.map_or_else(|reason| Ok(Err(reason)), |cell| attempt(lab, cell))?);
    }
    let what = |cell: &Cell| format!("worker, {}, configuration {}", cell.subject.name, cell.configuration.number);
    rounds::sample(lab, effort.samples, &mut cells, what, |cell| cell.sample(lab, photos, service))?;
    let mut table = Table::new(&schema::WORKER);
    let names = [base.encoder.as_str(), STUB];
    for (name, cells) in names.iter().zip(cells.chunks(Configuration::COUNT)) {
        push(&mut table, lab, photos, service, name, cells);
    }
    Ok(table)
}

/// Adds the rows of one encoder.
fn push(table: &mut Table, lab: &Lab<'_>, photos: &PhotoSet, service: &Service, name: &str, cells: &[Attempt<Cell>]) {
    let base = lab.rig.base();
    let rates: Vec<Option<f64>> = cells.iter().map(|cell| cell.as_ref().ok().and_then(Cell::rate)).collect();
    let times = |rate: Option<f64>, other: Option<f64>| rate.zip(other).map(|(rate, other)| rate / other);
    for (at, (configuration, cell)) in Configuration::all(&base, service).iter().zip(cells).enumerate() {
        let mut identity = configuration.columns();
        identity.extend(service.columns());
        identity.extend([
            ("photos", photos.name.as_str().into()),
            ("decoder", base.decoder.as_str().into()),
            ("resizer", base.resizer.as_str().into()),
            ("encoder", name.into()),
        ]);
        match name {
            STUB => {
                let [batch, image] = service.forward_sleeps.map(ms);
                identity.extend([("forward_sleep_ms", batch.into()), ("forward_sleep_per_image_ms", image.into())]);
            }
            _ => identity.extend([("dtype", base.dtype.name().into()), ("threads", base.threads.into())]),
        }
        table.push(row(identity, cell, |cell| {
            let mut columns = cell.columns();
            let previous = at.checked_sub(1).and_then(|before| rates[before]);
            columns.insert("times_first", times(rates[at], rates[0]).into());
            columns.insert("times_previous", times(rates[at], if at == 0 { rates[0] } else { previous }).into());
            columns
        }));
    }
}

/// A forward, and its expected vectors.
struct Subject {
    name: String,
    forward: Forward,
    /// Vectors of each photo from the first configuration.
    vectors: BTreeMap<usize, Vec<f32>>,
}

impl Subject {
    /// Creates the subject of the rig's own encoder.
    fn of_rig(lab: &Lab<'_>, photos: &PhotoSet, service: &Service) -> Result<Attempt<Arc<Self>>, LabError> {
        let setting = Setting { batch: service.batch.max(1), ..lab.rig.base() };
        let opened = attempt(lab, lab.encoder(&setting))?;
        let name = setting.encoder.clone();
        let begin = |encoder| Self::begin(lab, photos, service, name, Forward { setting, encoder });
        opened.map_or_else(|reason| Ok(Err(reason)), begin)
    }

    fn stub(lab: &Lab<'_>, photos: &PhotoSet, service: &Service) -> Result<Attempt<Arc<Self>>, LabError> {
        let setting = Setting { batch: service.batch.max(1), ..lab.rig.base() };
        let input = lab.rig.preprocess(&setting).geometry.output();
        let encoder = LentEncoder::new(Box::new(Stub::new(input, setting.batch, service.forward_sleeps)));
        Self::begin(lab, photos, service, STUB.to_owned(), Forward { setting, encoder })
    }

    /// Runs every photo through the first configuration, without latencies.
    fn begin(
        lab: &Lab<'_>,
        photos: &PhotoSet,
        service: &Service,
        name: String,
        forward: Forward,
    ) -> Result<Attempt<Arc<Self>>, LabError> {
        lab.watch.doing(&format!("worker, {name}: every photo once"));
        let none = (Duration::ZERO, Duration::ZERO);
        let at_once = Service { photos: none, callbacks: none, ..service.clone() };
        let in_turn = Configuration::all(&forward.setting, service)[0];
        let taken = Sample::take(lab, photos, &at_once, &forward, in_turn, photos.photos.len());
        let subject = |sample: Sample| Self { name, forward, vectors: sample.vectors.into_iter().collect() };
        Ok(attempt(lab, taken)?.map(|sample| Arc::new(subject(sample))))
    }

    /// Returns the minimum cosine between the photos' vectors and the expected ones; `None` if they are identical bit
    /// for bit.
    fn compare(&self, vectors: &[(usize, Vec<f32>)]) -> Result<Option<f64>, LabError> {
        let cosine = |(photo, vector): &(usize, Vec<f32>)| {
            let known = self.vectors.get(photo).map_or(&[][..], Vec::as_slice);
            let likeness = || if known.len() == vector.len() { cosine(known, vector) } else { 0.0 };
            (known != vector.as_slice()).then(likeness)
        };
        let Some(least) = vectors.iter().filter_map(cosine).reduce(f64::min) else { return Ok(None) };
        if self.forward.encoder.spec().batch_invariant || least < SAME {
            return Err(wrong(format!("photos have other vectors than in configuration 1, cosine {least}")));
        }
        Ok(Some(least))
    }
}

/// One encoder's configuration, being measured.
struct Cell {
    subject: Arc<Subject>,
    configuration: Configuration,
    requests: usize,
    samples: Vec<Sample>,
    /// Minimum cosine with the first configuration's vectors; `None` if all are identical.
    cosine: Option<f64>,
}

impl Cell {
    /// Chooses the number of requests of a sample, by a first short one that also warms everything up.
    fn new(
        lab: &Lab<'_>,
        photos: &PhotoSet,
        service: &Service,
        effort: &Effort,
        subject: Arc<Subject>,
        configuration: Configuration,
    ) -> Result<Self, LabError> {
        let number = configuration.number;
        lab.watch.doing(&format!("worker, {}, configuration {number}: warming up", subject.name));
        // As many as the worker may hold, so that each thread has had work.
        let few = 2 * configuration.held().max(4);
        let first = effort.images.map_or(few, |images| few.min(images as usize));
        let sample = Sample::take(lab, photos, service, &subject.forward, configuration, first)?;
        subject.compare(&sample.vectors)?;
        let fitting = ((sample.rate * effort.seconds).round() as usize).max(first);
        let requests = effort.images.map_or(fitting, |images| images as usize);
        Ok(Self { subject, configuration, requests, samples: Vec::new(), cosine: None })
    }

    fn sample(&mut self, lab: &Lab<'_>, photos: &PhotoSet, service: &Service) -> Result<(), LabError> {
        let sample = Sample::take(lab, photos, service, &self.subject.forward, self.configuration, self.requests)?;
        let cosine = self.subject.compare(&sample.vectors)?;
        self.cosine = self.cosine.into_iter().chain(cosine).reduce(f64::min);
        self.samples.push(sample);
        Ok(())
    }

    /// Returns the median rate.
    fn rate(&self) -> Option<f64> {
        self.median(|sample| Some(sample.rate))
    }

    fn median(&self, value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        median(&self.values(value))
    }

    fn values(&self, value: impl Fn(&Sample) -> Option<f64>) -> Vec<f64> {
        self.samples.iter().filter_map(value).collect()
    }

    fn columns(&self) -> Row {
        let rates = Spread::of(&self.values(|sample| Some(sample.rate)));
        let away: Vec<f64> = self.samples.iter().flat_map(|sample| sample.ms.iter().copied()).collect();
        Row::from([
            ("requests", self.requests.into()),
            ("samples", self.samples.len().into()),
            ("requests_per_second", rates.map(|rates| rates.median).into()),
            ("requests_per_second_min", rates.map(|rates| rates.min).into()),
            ("requests_per_second_max", rates.map(|rates| rates.max).into()),
            ("p50_ms", median(&away).into()),
            ("p99_ms", quantile(&away, 0.99).into()),
            ("images_per_batch", self.median(|sample| Some(sample.images_per_batch)).into()),
            ("encoder_busy", self.median(|sample| Some(sample.encoder_busy)).into()),
            ("cpu_busy", self.median(|sample| sample.cpu_busy).into()),
            ("peak_memory_mb", self.median(|sample| sample.peak_mb).into()),
            ("memory_growth_mb", self.median(|sample| sample.growth_mb).into()),
            ("memory_of", self.samples.first().map(|sample| sample.memory_of.clone()).into()),
            ("vectors", self.cosine.map_or_else(|| "exact".to_owned(), |cosine| format!("{cosine:.6}")).into()),
        ])
    }
}
