use std::sync::Arc;
use std::time::{Duration, Instant};

use foveate_encode::Encoder as _;
use foveate_net::Client;
use foveate_net::photo_server::{Latency, PhotoServer};
use foveate_pipeline::lane::Normalize;
use foveate_profile::card::{CardSampler, CardUse, Cards};
use foveate_profile::process;
use foveate_queue::{Callback, ImageRef, Job, Message};
use foveate_worker::{Batching, Callbacks, Embed, Engine, InFlightLimit, Worker, WorkerOptions};

use super::encoders::{EncoderNotes, NotedEncoder};
use super::ledger::{CallbackLedger, PhotoVectors};
use super::service::{Service, ServiceConfiguration, ms, photo};
use super::watched::Watched;
use crate::bench::cells::{Effort, wrong};
use crate::bench::memory::Peak;
use crate::stats::mean;
use crate::{Lab, LabError, LentEncoder, PhotoSet, Setting};

/// Maximum time for a worker to stop when no work is left.
const END: Duration = Duration::from_secs(20);
/// Minimum length of a full window in seconds, and in latencies of the slowest photo. In a shorter one, a single slow
/// photo decides how many requests fit.
const LEAST_SECONDS: f64 = 30.0;
const LEAST_LATENCIES: u32 = 20;

/// The encoder, and the setting of the stages before it.
pub(super) struct SubjectForward {
    pub(super) setting: Setting,
    pub(super) encoder: LentEncoder,
}

/// The part of a worker's time that is measured. Before it, as many requests complete as the worker holds, so that no
/// request of the window began with an idle worker.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SampleWindow {
    /// Requests completed before it.
    before: usize,
    seconds: f64,
    /// Minimum length in latencies of the slowest photo.
    latencies: u32,
    /// Minimum number of requests completed in it.
    requests: usize,
}

impl SampleWindow {
    /// Returns the window of a sample; of a quick one, it is as short as the effort says.
    pub(super) fn of(effort: &Effort, configuration: ServiceConfiguration) -> Self {
        let ServiceConfiguration { queue_size, batch, .. } = configuration;
        let before = queue_size.max(2 * batch);
        let requests = effort.images.map_or(2 * batch, |images| images as usize);
        match effort.quick {
            true if effort.images.is_some() => Self { before, requests, ..Self::default() },
            true => Self { before, seconds: effort.seconds, requests, latencies: 0 },
            false => Self { before, seconds: effort.seconds.max(LEAST_SECONDS), requests, latencies: LEAST_LATENCIES },
        }
    }

    /// Returns a window of `requests` from the first on.
    pub(super) fn from_the_first(requests: usize) -> Self {
        Self { requests, ..Self::default() }
    }
}

/// The figures of one window of a worker's steady state.
pub(super) struct ServiceSample {
    /// Requests per second.
    pub(super) rate: f64,
    pub(super) seconds: f64,
    /// Milliseconds of each request, from its delivery to its acknowledgement.
    pub(super) ms: Vec<f64>,
    /// Latency of the slowest photo.
    pub(super) slowest_ms: f64,
    pub(super) images_per_batch: f64,
    pub(super) encoder_busy: f64,
    pub(super) cpu_busy: Option<f64>,
    pub(super) peak_mb: Option<f64>,
    pub(super) mean_mb: Option<f64>,
    pub(super) memory_of: String,
    /// Use of the forward's cards, if there are any that the driver has figures for.
    pub(super) cards: Option<CardUse>,
    /// Vector of each photo, if there were none to compare with.
    pub(super) vectors: PhotoVectors,
    /// Minimum cosine with the expected vectors; `None` if all are identical.
    pub(super) cosine: Option<f64>,
}

impl ServiceSample {
    /// Runs a separate worker until the window has passed and each message that was sent is done. `expected` are the
    /// photos' vectors, if they are known.
    pub(super) fn take(
        lab: &Lab<'_>,
        photos: &PhotoSet,
        service: &Service,
        forward: &SubjectForward,
        configuration: ServiceConfiguration,
        window: SampleWindow,
        expected: Option<&PhotoVectors>,
    ) -> Result<Self, LabError> {
        let server = start_server(photos, service, lab.seed)?;
        let address = server.url("");
        let queue = Arc::new(Watched::new(move |request| {
            let id = request.to_string();
            let image = ImageRef::Url(format!("{address}{}", photo(request)));
            let callback = Some(Callback { url: format!("{address}/callback") });
            let job = Job { id: Some(id.clone()), callback, ..Job::new(image) };
            job.to_json().map(|body| Message { id, body }).map_err(|error| error.to_string())
        }));
        let notes = EncoderNotes::default();
        let worker = start_worker(lab, forward, configuration, &queue, &notes)?;
        let is_exact = forward.encoder.spec().batch_invariant;
        let ledger = CallbackLedger::new(photos.photos.len(), expected, is_exact);
        let mut run = WorkerRun { lab, server, queue, ledger, resident: Vec::new() };

        run.wait(&|done| done >= window.before)?;
        run.resident.clear();
        let peak = Peak::begin();
        let cards = Cards::find(&forward.encoder.spec().device).ok().map(CardSampler::start);
        let work = notes.work();
        let cpu = process::processor_time();
        let begun = Instant::now();
        let before = run.queue.done();
        let mut length = Duration::from_secs_f64(window.seconds);
        let slowest = loop {
            run.wait(&|done| done >= before + window.requests && begun.elapsed() >= length)?;
            // The longer the window, the more photos it has, and the slowest may be among the last.
            let slowest = run.slowest_photo();
            if begun.elapsed() >= slowest * window.latencies {
                break slowest;
            }
            length = slowest * window.latencies;
        };
        let seconds = begun.elapsed().as_secs_f64().max(1e-9);
        let times = run.queue.times_since(before);
        let work = notes.work().since(work);
        let cpu = process::processor_time().zip(cpu).map(|(after, before)| after.saturating_sub(before));
        let memory = peak.end();
        let cards = cards.and_then(CardSampler::finish);
        let resident = mean(&run.resident);

        let sent = run.queue.close();
        run.wait(&|done| done >= sent)?;
        run.queue.check_deliveries()?;
        let left = worker.stop(END);
        if left > 0 {
            return Err(wrong(format!("the worker gave {left} messages back at its end")));
        }
        drop(worker);
        run.ledger.take(&run.server)?;
        run.ledger.check(&run.server, sent)?;

        let cores = lab.rig.context().cores.max(1) as f64;
        Ok(Self {
            rate: times.len() as f64 / seconds,
            seconds,
            ms: times,
            slowest_ms: ms(slowest),
            images_per_batch: work.images as f64 / work.batches as f64,
            encoder_busy: work.busy.as_secs_f64() / seconds,
            cpu_busy: cpu.map(|cpu| cpu.as_secs_f64() / (seconds * cores)),
            peak_mb: memory.bytes.map(|bytes| bytes as f64 / 1e6),
            mean_mb: resident,
            memory_of: memory.of,
            cards,
            vectors: run.ledger.vectors,
            cosine: run.ledger.cosine,
        })
    }
}

/// A worker's environment while it runs.
struct WorkerRun<'a> {
    lab: &'a Lab<'a>,
    server: PhotoServer,
    queue: Arc<Watched>,
    ledger: CallbackLedger<'a>,
    /// The process's memory at intervals, in 10^6 bytes.
    resident: Vec<f64>,
}

impl WorkerRun<'_> {
    /// Waits until `is_done` of the number of requests that are done.
    fn wait(&mut self, is_done: &dyn Fn(usize) -> bool) -> Result<(), LabError> {
        loop {
            self.lab.go_on()?;
            self.ledger.take(&self.server)?;
            self.resident.extend(process::resident_bytes().map(|bytes| bytes as f64 / 1e6));
            if self.queue.wait(is_done)? {
                return Ok(());
            }
        }
    }

    /// Returns the latency of the slowest photo of all requests so far.
    fn slowest_photo(&self) -> Duration {
        let latencies = (0..self.queue.sent()).map(|request| self.server.latency_of(&photo(request)));
        latencies.max().unwrap_or_default()
    }
}

fn start_server(photos: &PhotoSet, service: &Service, seed: u64) -> Result<PhotoServer, LabError> {
    let options = foveate_net::photo_server::PhotoServerOptions {
        latency: Latency::new(service.photos.0, service.photos.1)?,
        callback_latency: Latency::new(service.callbacks.0, service.callbacks.1)?,
        seed,
        ..foveate_net::photo_server::PhotoServerOptions::default()
    };
    let photos = photos.photos.iter().map(|photo| Arc::clone(&photo.bytes)).collect();
    PhotoServer::start(photos, options).map_err(LabError::Server)
}

fn start_worker(
    lab: &Lab<'_>,
    forward: &SubjectForward,
    configuration: ServiceConfiguration,
    queue: &Arc<Watched>,
    notes: &EncoderNotes,
) -> Result<Worker, LabError> {
    let ServiceConfiguration { downloaders, workers, callers, batch, queue_size, .. } = configuration;
    let options = foveate_net::ClientOptions {
        allow_private: vec!["127.0.0.1".to_owned()],
        per_host: downloaders + workers + callers + 1,
        ..foveate_net::ClientOptions::default()
    };
    let client = Arc::new(Client::new(options)?);
    let encoder = NotedEncoder { inner: forward.encoder.clone(), notes: notes.clone() };
    let embed = Embed::new(lab.rig.preprocessors(&forward.setting), vec![Box::new(encoder)], Normalize::Off)?;
    let engine = Engine::builder()
        .client(Arc::clone(&client))
        // One site has a quarter of the threads.
        .downloads(4 * downloaders)
        .workers(workers)
        .max_in_flight(queue_size)
        .task(Job::DEFAULT_TASK, embed, Batching { max: batch, ..Batching::default() })
        .build()?;
    let callbacks = Callbacks { posts: 4 * callers, ..Callbacks::new(Some(client)) };
    let in_flight_limit = InFlightLimit::Fixed(queue_size);
    let options = WorkerOptions { in_flight_limit, ..WorkerOptions::new(vec![Arc::clone(queue) as _], callbacks) };
    Ok(Worker::start(engine, options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_window_is_never_short_and_a_quick_one_is_what_was_asked_for() {
        let service = Service { batch: 4, queue_size: 20, ..Service::usual() };
        let all = ServiceConfiguration::all(&Setting::plain(), &service);
        let full = SampleWindow::of(&Effort::usual(), all[3]);
        assert_eq!(full, SampleWindow { before: 20, seconds: 30.0, latencies: 20, requests: 8 });
        assert_eq!(SampleWindow::of(&Effort { seconds: 60.0, ..Effort::usual() }, all[3]).seconds, 60.0);
        assert_eq!(
            SampleWindow::of(&Effort { images: Some(5), ..Effort::usual() }, all[3]),
            SampleWindow { requests: 5, ..full }
        );
        let quick = SampleWindow::of(&Effort::quick(), all[0]);
        assert_eq!(quick, SampleWindow { before: 2, seconds: 1.0, latencies: 0, requests: 2 });
        let counted = SampleWindow::of(&Effort { images: Some(5), ..Effort::quick() }, all[0]);
        assert_eq!(counted, SampleWindow { before: 2, seconds: 0.0, latencies: 0, requests: 5 });
    }
}
