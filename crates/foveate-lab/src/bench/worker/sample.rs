use std::sync::Arc;
use std::time::Duration;

use foveate_lane::Normalize;
use foveate_net::Client;
use foveate_photo_server::{Latency, PhotoServer};
use foveate_profile::process;
use foveate_queue::{Callback, ImageRef, Job, JobQueue as _, Message};
use foveate_worker::{Batching, Callbacks, Embed, Engine, InFlightLimit, Worker, WorkerOptions};
use serde::Deserialize;

use super::encoders::{Noted, Notes};
use super::service::{Configuration, Service};
use super::watched::Watched;
use crate::bench::cells::wrong;
use crate::bench::memory::Peak;
use crate::{Lab, LabError, LentEncoder, PhotoSet, Setting};

/// Maximum time for a worker to stop when no work is left.
const END: Duration = Duration::from_secs(20);

/// The encoder, and the setting of the stages before it.
pub(super) struct Forward {
    pub(super) setting: Setting,
    pub(super) encoder: LentEncoder,
}

/// The figures of one run of a worker.
pub(super) struct Sample {
    /// Requests per second.
    pub(super) rate: f64,
    /// Milliseconds of each request, from its delivery to its acknowledgement.
    pub(super) ms: Vec<f64>,
    pub(super) images_per_batch: f64,
    pub(super) encoder_busy: f64,
    pub(super) cpu_busy: Option<f64>,
    pub(super) peak_mb: Option<f64>,
    pub(super) growth_mb: Option<f64>,
    pub(super) memory_of: String,
    /// Vector of each request, with its photo's number.
    pub(super) vectors: Vec<(usize, Vec<f32>)>,
}

impl Sample {
    /// Sends `requests` messages through a worker of their own, and returns the results.
    pub(super) fn take(
        lab: &Lab<'_>,
        photos: &PhotoSet,
        service: &Service,
        forward: &Forward,
        configuration: Configuration,
        requests: usize,
    ) -> Result<Self, LabError> {
        let server = start_server(photos, service, lab.seed)?;
        let queue = Arc::new(Watched::new());
        send(&queue, &server, requests)?;
        let before = process::resident_bytes();
        let peak = Peak::begin();
        let cpu = process::processor_time();
        let notes = Notes::default();
        let worker = start_worker(lab, forward, configuration, &queue, &notes)?;
        let trip = queue.wait(&|| lab.go_on(), requests)?;
        let cpu = process::processor_time().zip(cpu).map(|(after, before)| after.saturating_sub(before));
        let left = worker.stop(END);
        if left > 0 {
            return Err(wrong(format!("the worker gave {left} messages back at its end")));
        }
        drop(worker);
        let memory = peak.end();
        let mb = |bytes: u64| bytes as f64 / 1e6;
        let (wall, work) = (trip.wall().as_secs_f64().max(1e-9), notes.work());
        let cores = lab.rig.context().cores.max(1) as f64;
        Ok(Self {
            vectors: called_back(&server, photos.photos.len(), requests)?,
            rate: requests as f64 / wall,
            images_per_batch: requests as f64 / work.batches.max(1) as f64,
            encoder_busy: work.busy.as_secs_f64() / wall,
            cpu_busy: cpu.map(|cpu| cpu.as_secs_f64() / (wall * cores)),
            growth_mb: memory.bytes.zip(before).map(|(peak, before)| mb(peak.saturating_sub(before))),
            peak_mb: memory.bytes.map(mb),
            memory_of: memory.of,
            ms: trip.ms,
        })
    }
}

fn start_server(photos: &PhotoSet, service: &Service, seed: u64) -> Result<PhotoServer, LabError> {
    let latency = |(median, p99)| Latency::new(median, p99);
    let options = foveate_photo_server::PhotoServerOptions {
        latency: latency(service.photos)?,
        callback_latency: latency(service.callbacks)?,
        seed,
        ..foveate_photo_server::PhotoServerOptions::default()
    };
    let photos = photos.photos.iter().map(|photo| Arc::clone(&photo.bytes)).collect();
    PhotoServer::start(photos, options).map_err(LabError::Server)
}

/// Puts every job into the queue.
fn send(queue: &Watched, server: &PhotoServer, requests: usize) -> Result<(), LabError> {
    let message = |request: usize| {
        let id = request.to_string();
        let callback = Some(Callback { url: server.url("/callback") });
        let job = Job { id: Some(id.clone()), callback, ..Job::new(ImageRef::Url(server.url(&photo(request)))) };
        job.to_json().map(|body| Message { id, body }).map_err(wrong)
    };
    let messages = (0..requests).map(message).collect::<Result<Vec<_>, _>>()?;
    queue.send(&messages).into_iter().try_for_each(|sent| sent.map(drop)).map_err(wrong)
}

/// Returns the path of a request's photo. The server has the set's photos and repeats them.
fn photo(request: usize) -> String {
    format!("/photo/{request}")
}

fn start_worker(
    lab: &Lab<'_>,
    forward: &Forward,
    configuration: Configuration,
    queue: &Arc<Watched>,
    notes: &Notes,
) -> Result<Worker, LabError> {
    let Configuration { downloaders, workers, callers, batch, .. } = configuration;
    let options = foveate_net::ClientOptions {
        allow_private: vec!["127.0.0.1".to_owned()],
        per_host: downloaders + workers + callers + 1,
        ..foveate_net::ClientOptions::default()
    };
    let client = Arc::new(Client::new(options)?);
    let encoder = Noted { inner: forward.encoder.clone(), notes: notes.clone() };
    let embed = Embed::new(lab.rig.preprocessors(&forward.setting), vec![Box::new(encoder)], Normalize::Off)?;
    let engine = Engine::builder()
        .client(Arc::clone(&client))
        // One site has a quarter of the threads.
        .downloaders(4 * downloaders)
        .workers(workers)
        .task(Job::DEFAULT_TASK, embed, Batching { max: batch, ..Batching::default() })
        .build()?;
    let callbacks = Callbacks { threads: 4 * callers, ..Callbacks::new(Some(client)) };
    let in_flight_limit = InFlightLimit::Fixed(configuration.held());
    let options = WorkerOptions { in_flight_limit, ..WorkerOptions::new(vec![Arc::clone(queue) as _], callbacks) };
    Ok(Worker::start(engine, options)?)
}

/// The content of a callback.
#[derive(Deserialize)]
struct Said {
    id: String,
    result: Embedding,
}

#[derive(Deserialize)]
struct Embedding {
    embedding: Vec<f32>,
}

/// Returns each request's photo and vector, after a check that each was downloaded and called back exactly once.
fn called_back(server: &PhotoServer, photos: usize, requests: usize) -> Result<Vec<(usize, Vec<f32>)>, LabError> {
    let (mut vectors, mut called) = (Vec::with_capacity(requests), vec![false; requests]);
    for (_, body) in server.callbacks().received() {
        let Said { id, result } =
            serde_json::from_slice(&body).map_err(|error| wrong(format!("a callback: {error}")))?;
        let request = id.parse().ok().filter(|&request: &usize| request < requests);
        let request = request.ok_or_else(|| wrong(format!("a callback for '{id}'")))?;
        if std::mem::replace(&mut called[request], true) {
            return Err(wrong(format!("request {id} was called back twice")));
        }
        vectors.push((request % photos, result.embedding));
    }
    let again = (0..requests).filter(|&request| server.requests(&photo(request)) != 1).count();
    if vectors.len() < requests || again > 0 {
        let called = vectors.len();
        return Err(wrong(format!("{called} of {requests} requests were called back, {again} not downloaded once")));
    }
    Ok(vectors)
}
