//! The queue worker, with more and more of its stages in parallel.

mod encoders;
mod ledger;
mod sample;
mod service;
mod watched;

use std::sync::Arc;
use std::time::Duration;

use encoders::Stub;
use ledger::PhotoVectors;
use sample::{SampleWindow, ServiceSample, SubjectForward};
pub use service::Service;
use service::{ServiceConfiguration, ms};

use super::cells::{Attempt, Effort, Row, attempt, row};
use super::rounds;
use crate::run::card_columns;
use crate::stats::{Spread, median, quantile};
use crate::{Lab, LabError, LentEncoder, PhotoSet, Setting, Table, schema};

/// Name of the encoder that sleeps.
const STUB: &str = "stub";
/// Maximum number of samples. Each is ten times as long as those of other experiments.
const MOST_SAMPLES: usize = 3;

/// Measures four configurations: every stage in turn on one thread; downloads and callbacks on their own threads;
/// photos prepared while others are encoded; batches. Each is the same worker with other numbers of threads. They
/// alternate with each other, once with the rig's encoder and once with one that sleeps in place of a device.
///
/// Every photo comes from a [server](foveate_net::photo_server) on this machine, and every result is posted to it. A
/// sample is a window of the steady state: as many requests complete before it as the worker holds, and the queue never
/// runs dry. It lasts at least 30 seconds and 20 times the latency of its slowest photo, unless the effort is quick. It
/// counts if each message was delivered, downloaded, called back and acknowledged exactly once, those before and after
/// the window included, with the first configuration's vectors. They must match bit for bit if the encoder declares
/// that it does not depend on the batch.
///
/// # Errors
/// [`LabError::Latency`] for invalid latencies; [`LabError::Interrupted`].
pub fn worker(lab: &Lab<'_>, photos: &PhotoSet, service: &Service, effort: &Effort) -> Result<Table, LabError> {
    service.check()?;
    let base = lab.rig.base();
    let subjects = [ServiceSubject::of_rig(lab, photos, service)?, ServiceSubject::stub(lab, photos, service)?];
    let mut cells: Vec<Attempt<ServiceRun>> = Vec::new();
    for subject in &subjects {
        for configuration in ServiceConfiguration::all(&base, service) {
            cells.push(subject.clone().map(|subject| ServiceRun { subject, configuration, samples: Vec::new() }));
        }
    }
    rounds::sample(
        lab,
        effort.samples.min(MOST_SAMPLES),
        &mut cells,
        |cell| format!("worker, {}, configuration {}", cell.subject.name, cell.configuration.number),
        |cell| cell.sample(lab, photos, service, effort),
    )?;
    let mut table = Table::new(&schema::WORKER);
    let names = [base.encoder.as_str(), STUB];
    for (name, cells) in names.iter().zip(cells.chunks(ServiceConfiguration::COUNT)) {
        push(&mut table, lab, photos, service, name, cells);
    }
    Ok(table)
}

/// Adds the rows of one encoder.
fn push(
    table: &mut Table,
    lab: &Lab<'_>,
    photos: &PhotoSet,
    service: &Service,
    name: &str,
    cells: &[Attempt<ServiceRun>],
) {
    let base = lab.rig.base();
    let rates: Vec<Option<f64>> = cells.iter().map(|cell| cell.as_ref().ok().and_then(ServiceRun::rate)).collect();
    for (at, (configuration, cell)) in ServiceConfiguration::all(&base, service).iter().zip(cells).enumerate() {
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
            // The first configuration is its own previous one.
            for (name, other) in [("times_first", rates[0]), ("times_previous", rates[at.saturating_sub(1)])] {
                columns.insert(name, rates[at].zip(other).map(|(rate, other)| rate / other).into());
            }
            columns
        }));
    }
}

/// A forward, and its expected vectors.
struct ServiceSubject {
    name: String,
    forward: SubjectForward,
    /// Vectors of each photo from the first configuration.
    vectors: PhotoVectors,
}

impl ServiceSubject {
    /// Creates the subject of the rig's own encoder.
    fn of_rig(lab: &Lab<'_>, photos: &PhotoSet, service: &Service) -> Result<Attempt<Arc<Self>>, LabError> {
        let setting = Setting { batch: service.batch.max(1), ..lab.rig.base() };
        let opened = attempt(lab, lab.encoder(&setting))?;
        let name = setting.encoder.clone();
        match opened {
            Ok(encoder) => Self::begin(lab, photos, service, name, SubjectForward { setting, encoder }),
            Err(reason) => Ok(Err(reason)),
        }
    }

    fn stub(lab: &Lab<'_>, photos: &PhotoSet, service: &Service) -> Result<Attempt<Arc<Self>>, LabError> {
        let setting = Setting { batch: service.batch.max(1), ..lab.rig.base() };
        let input = lab.rig.preprocess(&setting).geometry.output();
        let encoder = LentEncoder::new(Box::new(Stub::new(input, setting.batch, service.forward_sleeps)));
        Self::begin(lab, photos, service, STUB.to_owned(), SubjectForward { setting, encoder })
    }

    /// Runs every photo through the first configuration, without latencies.
    fn begin(
        lab: &Lab<'_>,
        photos: &PhotoSet,
        service: &Service,
        name: String,
        forward: SubjectForward,
    ) -> Result<Attempt<Arc<Self>>, LabError> {
        lab.watch.doing(&format!("worker, {name}: every photo once"));
        let none = (Duration::ZERO, Duration::ZERO);
        let at_once = Service { photos: none, callbacks: none, ..service.clone() };
        let in_turn = ServiceConfiguration::all(&forward.setting, service)[0];
        let window = SampleWindow::from_the_first(photos.photos.len());
        let taken = ServiceSample::take(lab, photos, &at_once, &forward, in_turn, window, None);
        Ok(attempt(lab, taken)?.map(|sample| Arc::new(Self { name, forward, vectors: sample.vectors })))
    }
}

/// One encoder's configuration, being measured.
struct ServiceRun {
    subject: Arc<ServiceSubject>,
    configuration: ServiceConfiguration,
    samples: Vec<ServiceSample>,
}

impl ServiceRun {
    fn sample(&mut self, lab: &Lab<'_>, photos: &PhotoSet, service: &Service, effort: &Effort) -> Result<(), LabError> {
        let ServiceSubject { forward, vectors, .. } = &*self.subject;
        let window = SampleWindow::of(effort, self.configuration);
        self.samples.push(ServiceSample::take(
            lab,
            photos,
            service,
            forward,
            self.configuration,
            window,
            Some(vectors),
        )?);
        Ok(())
    }

    /// Returns the median rate.
    fn rate(&self) -> Option<f64> {
        self.median(|sample| Some(sample.rate))
    }

    fn median(&self, value: impl Fn(&ServiceSample) -> Option<f64>) -> Option<f64> {
        median(&self.values(value))
    }

    fn values(&self, value: impl Fn(&ServiceSample) -> Option<f64>) -> Vec<f64> {
        self.samples.iter().filter_map(value).collect()
    }

    fn columns(&self) -> Row {
        let rates = Spread::of(&self.values(|sample| Some(sample.rate)));
        let away: Vec<f64> = self.samples.iter().flat_map(|sample| sample.ms.iter().copied()).collect();
        let cosine = self.values(|sample| sample.cosine).into_iter().reduce(f64::min);
        let mut columns = Row::from([
            ("requests", self.median(|sample| Some(sample.ms.len() as f64)).into()),
            ("samples", self.samples.len().into()),
            ("images", self.median(|sample| Some(sample.ms.len() as f64)).into()),
            ("sample_seconds", self.median(|sample| Some(sample.seconds)).into()),
            ("slowest_photo_ms", self.median(|sample| Some(sample.slowest_ms)).into()),
            ("requests_per_second", rates.map(|rates| rates.median).into()),
            ("requests_per_second_min", rates.map(|rates| rates.min).into()),
            ("requests_per_second_max", rates.map(|rates| rates.max).into()),
            ("p50_ms", median(&away).into()),
            ("p99_ms", quantile(&away, 0.99).into()),
            ("images_per_batch", self.median(|sample| Some(sample.images_per_batch)).into()),
            ("encoder_busy", self.median(|sample| Some(sample.encoder_busy)).into()),
            ("cpu_busy", self.median(|sample| sample.cpu_busy).into()),
            ("peak_memory_mb", self.median(|sample| sample.peak_mb).into()),
            ("mean_memory_mb", self.median(|sample| sample.mean_mb).into()),
            ("memory_of", self.samples.first().map(|sample| sample.memory_of.clone()).into()),
            ("vectors", cosine.map_or_else(|| "exact".to_owned(), |cosine| format!("{cosine:.6}")).into()),
        ]);
        columns.extend(card_columns(self.samples.iter().map(|sample| sample.cards)));
        columns
    }
}
