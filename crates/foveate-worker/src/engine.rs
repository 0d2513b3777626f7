//! Processes requests: download → preprocess → dynamic batch → process.
//!
//! A download is a task, and the other stages have threads. Passing a request on never blocks: each queue has room for
//! every request under way. Two limits bound them: the number of requests, at the entrance, and bytes, before a body is
//! read. So no stage can block another.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use foveate_net::{Client, Turns};
use foveate_pipeline::Queue;
use foveate_source::AllowedObjects;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::downloads::pass_on;
use crate::engine_state::{EngineItem, EnginePlace, EngineState, NamedTask, site};
use crate::engine_threads;
use crate::erased::{self, AnyLane, AnyTask};
use crate::fair_queue::FairQueue;
use crate::io_runtime::IoRuntime;
use crate::memory_budget::MemoryBudget;
use crate::metrics::WorkerMetrics;
use crate::progress::ThreadProgress;
use crate::{Batching, EngineError, Probe, Rejected, Request, Task, lock, sites};

/// Longest wait at shutdown for threads without work.
const MOMENT: Duration = Duration::from_secs(1);
/// Most requests of slow sites that a worker may add to its limit.
pub(crate) const MAX_STALLED: usize = 4096;

/// Configures and starts an [`Engine`].
pub struct EngineBuilder {
    client: Option<Arc<Client>>,
    objects: Option<AllowedObjects>,
    downloads: usize,
    workers: usize,
    max_in_flight: usize,
    max_bytes_in_flight: u64,
    max_bytes: u64,
    stall: Duration,
    runtime: Option<IoRuntime>,
    tasks: Vec<(String, Arc<dyn AnyTask>, Batching)>,
    /// The lanes of each task, one for each of its processing threads.
    lanes: Vec<Vec<Box<dyn AnyLane>>>,
}

impl Default for EngineBuilder {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            client: None,
            objects: None,
            downloads: 64,
            workers: cores,
            max_in_flight: 512,
            max_bytes_in_flight: 256 << 20,
            max_bytes: foveate_net::ClientOptions::default().max_bytes,
            stall: Duration::from_secs(120),
            runtime: None,
            tasks: Vec::new(),
            lanes: Vec::new(),
        }
    }
}

impl EngineBuilder {
    /// Downloads images with `client`. Without a client, requests must carry their bytes or name objects.
    #[must_use]
    pub fn client(self, client: Arc<Client>) -> Self {
        Self { client: Some(client), ..self }
    }

    /// Reads objects that are allowed.
    #[must_use]
    pub fn objects(self, objects: AllowedObjects) -> Self {
        Self { objects: Some(objects), ..self }
    }

    /// A site, or a bucket, has at most a quarter of this number of downloads at once; there is no limit for all sites
    /// together. With 0, the next stage's threads download. Default: 64.
    #[must_use]
    pub fn downloads(self, downloads: usize) -> Self {
        Self { downloads, ..self }
    }

    /// Number of threads that preprocess. With 0, the threads that process also preprocess. Default: one per core.
    #[must_use]
    pub fn workers(self, threads: usize) -> Self {
        Self { workers: threads, ..self }
    }

    /// Most requests under way at once, at least 1. Default: 512.
    #[must_use]
    pub fn max_in_flight(self, requests: usize) -> Self {
        Self { max_in_flight: requests.max(1), ..self }
    }

    /// Most bytes of downloaded files that are not decoded yet. Default: 256 MiB.
    #[must_use]
    pub fn max_bytes_in_flight(self, bytes: u64) -> Self {
        Self { max_bytes_in_flight: bytes, ..self }
    }

    /// Most bytes of one object; the client limits downloads. Default: 32 MiB.
    #[must_use]
    pub fn max_bytes(self, bytes: u64) -> Self {
        Self { max_bytes: bytes, ..self }
    }

    /// Longest time in which the threads may finish nothing before the engine counts as stuck. Default: 2 minutes.
    #[must_use]
    pub fn stall(self, limit: Duration) -> Self {
        Self { stall: limit, ..self }
    }

    /// Waits for networks on this tokio runtime, which has its clock and its network enabled and outlives the engine.
    /// Queues of the engine's worker must have been opened on it. Default: an [`IoRuntime`] that ends with the engine.
    #[must_use]
    pub fn runtime(self, runtime: Handle) -> Self {
        Self { runtime: Some(runtime.into()), ..self }
    }

    /// Adds a task that requests call `name`.
    #[must_use]
    pub fn task(mut self, name: impl Into<String>, task: impl Task, batching: Batching) -> Self {
        let task = Arc::new(task);
        self.lanes.push((0..batching.lanes).map_while(|_| erased::lane(&task)).collect());
        self.tasks.push((name.into(), task, batching));
        self
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn build(self) -> Result<Engine, EngineError> {
        self.check()?;
        let room = self.max_in_flight + MAX_STALLED;
        let mut tasks = Vec::new();
        for (name, task, batching) in self.tasks {
            let ready = Queue::new("process", room, u64::MAX, None);
            tasks.push(NamedTask { name, task, batching, ready, coming: AtomicUsize::new(0) });
        }
        let runtime = self.runtime.map_or_else(IoRuntime::start, Ok)?;
        let per_host = self.client.as_ref().map_or(usize::MAX, |client| client.options().per_host);
        let shared = Arc::new(EngineState {
            turns: Turns::new(per_host.min(self.downloads / 4)),
            files: FairQueue::new(),
            tasks,
            has_downloads: self.downloads > 0,
            workers: self.workers,
            in_flight: Arc::default(),
            max_in_flight: self.max_in_flight,
            memory: MemoryBudget::new(self.max_bytes_in_flight),
            max_bytes: self.max_bytes,
            runtime: runtime.handle().clone(),
            client: self.client,
            objects: self.objects,
            metrics: Arc::new(WorkerMetrics::new()),
            stopping: AtomicBool::new(false),
            stopped: CancellationToken::new(),
            progress: ThreadProgress::default(),
            stall: self.stall,
        });
        let threads = engine_threads::start(&shared, self.lanes)?;
        Ok(Engine { shared, runtime, threads: Mutex::new(threads) })
    }

    fn check(&self) -> Result<(), EngineError> {
        if self.tasks.is_empty() {
            return Err(EngineError::Options("an engine without a task".to_owned()));
        }
        for (i, ((name, _, batching), lanes)) in self.tasks.iter().zip(&self.lanes).enumerate() {
            let problem = if self.tasks[..i].iter().any(|(other, ..)| other == name) {
                format!("two tasks are called '{name}'")
            } else if batching.max == 0 || batching.lanes == 0 {
                format!("task '{name}': a batch has at least one image, and a task at least one lane")
            } else if lanes.len() < batching.lanes {
                format!("task '{name}' has no more than {} lanes, not {}", lanes.len(), batching.lanes)
            } else {
                continue;
            };
            return Err(EngineError::Options(problem));
        }
        Ok(())
    }
}

/// Processes images that arrive one by one. Threads share it; dropping it stops it.
pub struct Engine {
    shared: Arc<EngineState>,
    runtime: IoRuntime,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    /// A builder with the default settings.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    /// Takes a request, or returns it at once; never blocks.
    ///
    /// # Errors
    /// [`Rejected`] contains the request, which has no outcome.
    pub fn submit(&self, request: Request) -> Result<(), Rejected> {
        match self.in_flight() < self.max_in_flight() {
            true => self.accept(request),
            false => Err(Rejected::Full(Box::new(request))),
        }
    }

    /// Takes a request whose caller keeps to a limit of its own.
    pub(crate) fn accept(&self, request: Request) -> Result<(), Rejected> {
        let shared = &self.shared;
        if shared.stopping.load(SeqCst) {
            return Err(Rejected::Stopping(Box::new(request)));
        }
        let Some(task) = shared.tasks.iter().position(|task| task.name == request.task) else {
            let known = self.tasks().collect::<Vec<_>>().join(", ");
            return Err(Rejected::NoTask { request: Box::new(request), known });
        };
        let Request { id, image, metadata, done, span, .. } = request;
        shared.tasks[task].coming.fetch_add(1, SeqCst);
        let site = site(&image);
        let form = Some(image.into());
        let place = EnginePlace::new(&shared.in_flight);
        pass_on(shared, EngineItem { id, task, site, form, metadata, done, span, queued: Instant::now(), place });
        Ok(())
    }

    /// The names of the tasks.
    pub fn tasks(&self) -> impl Iterator<Item = &str> {
        self.shared.tasks.iter().map(|task| task.name.as_str())
    }

    /// Returns true if there is a task of this name that takes texts, too.
    pub fn takes_texts(&self, task: &str) -> bool {
        self.shared.tasks.iter().any(|known| known.name == task && known.task.takes_texts())
    }

    /// The runtime on which the engine waits for networks.
    pub fn runtime(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Requests under way.
    pub fn in_flight(&self) -> usize {
        self.shared.in_flight.load(SeqCst)
    }

    /// Most requests under way at once.
    pub fn max_in_flight(&self) -> usize {
        self.shared.max_in_flight
    }

    /// The largest batch of any task.
    pub(crate) fn largest_batch(&self) -> usize {
        self.shared.tasks.iter().map(|task| task.batching.max).max().unwrap_or(1)
    }

    /// Requests for images of sites that are slow, or whose images take long. They wait for these, and not for the
    /// engine.
    pub(crate) fn stalled(&self) -> usize {
        (sites::stalled(&self.shared.turns) + self.shared.files.stalled()).min(MAX_STALLED)
    }

    /// Returns true if an image is on a slow site, and enough others wait for it.
    pub(crate) fn is_full(&self, site: &str) -> bool {
        self.shared.is_full(site)
    }

    /// The engine's metrics.
    pub(crate) fn counters(&self) -> &Arc<WorkerMetrics> {
        &self.shared.metrics
    }

    /// The longest time in which threads may finish nothing.
    pub(crate) fn stall(&self) -> Duration {
        self.shared.stall
    }

    /// Takes no more requests, and waits at most `deadline` for those under way. The rest then fail at stage
    /// `shutdown`. Returns their number.
    pub fn stop(&self, deadline: Duration) -> usize {
        let until = Instant::now() + deadline;
        self.shared.stopping.store(true, SeqCst);
        wait_until(until, || self.in_flight() == 0);
        let left = self.in_flight();
        self.shared.abort();
        // The downloads end by themselves.
        wait_until(Instant::now() + MOMENT, || self.in_flight() == 0);
        let threads = std::mem::take(&mut *lock(&self.threads));
        join(threads, until);
        left
    }
}

/// Waits until `until`, or until `is_over`.
pub(crate) fn wait_until(until: Instant, is_over: impl Fn() -> bool) {
    while !is_over() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until `until`, but at least one second, for all `threads` to end. It does not wait longer for a thread that is
/// stuck or waits for a server: the process exits without it.
pub(crate) fn join(threads: Vec<JoinHandle<()>>, until: Instant) {
    let until = until.max(Instant::now() + MOMENT);
    for thread in threads {
        wait_until(until, || thread.is_finished());
        let name = thread.thread().name().unwrap_or_default().to_owned();
        if thread.is_finished() && thread.join().is_err() {
            tracing::error!(thread = name, "it panicked");
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

impl Probe for Engine {
    fn live(&self) -> Result<(), String> {
        self.shared.progress.check(self.shared.stall)
    }

    fn ready(&self) -> Result<(), String> {
        if self.shared.stopping.load(SeqCst) {
            return Err("stopping".to_owned());
        }
        self.live()?;
        match self.in_flight() < self.max_in_flight() {
            true => Ok(()),
            false => Err(format!("full: {} requests are under way", self.in_flight())),
        }
    }

    fn metrics(&self) -> String {
        let EngineState { metrics, memory, turns, .. } = &*self.shared;
        let waiting = turns.uses().values().map(|of_site| of_site.waiting).sum();
        metrics.waiting("download", waiting, self.max_in_flight());
        metrics.waiting("preprocess", self.shared.files.len(), self.max_in_flight());
        for task in &self.shared.tasks {
            metrics.waiting(&format!("process {}", task.name), task.ready.len(), self.max_in_flight());
        }
        metrics.in_flight(self.in_flight() as u64, memory.taken());
        metrics.render()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks: Vec<_> = self.tasks().collect();
        f.debug_struct("Engine").field("tasks", &tasks).field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}
