//! The state that the engine's threads share: requests under way, the queues before each stage, and the limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use foveate_net::{Client, CodedFile, Turns};
use foveate_pipeline::Queue;
use foveate_queue::ImageRef;
use foveate_source::AllowedObjects;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::erased::{AnyTask, Prepared};
use crate::fair_queue::FairQueue;
use crate::memory_budget::MemoryBudget;
use crate::metrics::WorkerMetrics;
use crate::progress::ThreadProgress;
use crate::{Batching, Done, Failure, File, Image, Output, Stage, sites};

/// The state that the engine's threads share.
pub(crate) struct EngineState {
    /// The turns of sites and buckets.
    pub(crate) turns: Arc<Turns>,
    /// Requests that wait for preprocessing.
    pub(crate) files: FairQueue<EngineItem>,
    pub(crate) tasks: Vec<NamedTask>,
    /// False if the next stage's threads download.
    pub(crate) has_downloads: bool,
    pub(crate) workers: usize,
    /// Requests under way.
    pub(crate) in_flight: Arc<AtomicUsize>,
    pub(crate) max_in_flight: usize,
    pub(crate) memory: MemoryBudget,
    pub(crate) max_bytes: u64,
    pub(crate) runtime: Handle,
    pub(crate) client: Option<Arc<Client>>,
    pub(crate) objects: Option<AllowedObjects>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    pub(crate) stopping: AtomicBool,
    /// Ends the downloads.
    pub(crate) stopped: CancellationToken,
    /// The work of the threads.
    pub(crate) progress: ThreadProgress,
    pub(crate) stall: Duration,
}

/// A named task and its queue.
pub(crate) struct NamedTask {
    pub(crate) name: String,
    pub(crate) task: Arc<dyn AnyTask>,
    pub(crate) batching: Batching,
    /// Requests that wait for processing.
    pub(crate) ready: Queue<EngineItem>,
    /// Requests for this task that are not in a batch yet.
    pub(crate) coming: AtomicUsize,
}

/// A request under way.
pub(crate) struct EngineItem {
    pub(crate) id: String,
    pub(crate) task: usize,
    /// The site or the bucket that it comes from; empty if there is none.
    pub(crate) site: String,
    /// `None` once the task has taken it.
    pub(crate) form: Option<Form>,
    pub(crate) metadata: Option<String>,
    pub(crate) done: Done,
    pub(crate) span: tracing::Span,
    /// The time at which it joined its current queue.
    pub(crate) queued: Instant,
    pub(crate) place: EnginePlace,
}

/// Counts a request as under way until it is dropped.
pub(crate) struct EnginePlace(Arc<AtomicUsize>);

impl EnginePlace {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for EnginePlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// The current form of an image.
pub(crate) enum Form {
    /// Not downloaded yet.
    At(ImageRef),
    File(File),
    /// A file in content codings.
    Coded(Box<CodedFile>, File),
    Text(String),
    Ready(Prepared),
    /// It needs no batch.
    Done(Output),
}

impl From<Image> for Form {
    fn from(image: Image) -> Self {
        match image {
            Image::At(reference) => Self::At(reference),
            Image::Bytes(bytes) => Self::File(File::new(bytes, None)),
            Image::Text(text) => Self::Text(text),
        }
    }
}

/// The site or the bucket of an image; empty if there is none.
pub(crate) fn site(image: &Image) -> String {
    match image {
        Image::At(ImageRef::Url(url)) => foveate_net::site(url).unwrap_or_default(),
        Image::At(ImageRef::Object(address)) => bucket(address).to_owned(),
        Image::Bytes(_) | Image::Text(_) => String::new(),
    }
}

/// The bucket of an object's address.
pub(crate) fn bucket(address: &str) -> &str {
    let key = address.find("://").and_then(|scheme| address[scheme + 3..].find('/').map(|slash| scheme + 3 + slash));
    &address[..key.unwrap_or(address.len())]
}

impl EngineState {
    /// Returns true if a site is slow, and enough downloads wait for it.
    pub(crate) fn is_full(&self, site: &str) -> bool {
        sites::is_full(&self.turns, site, self.max_in_flight / 4)
    }

    /// Takes an item from `queue`, unless nobody waits for it any more.
    pub(crate) fn begin(&self, queue: &str, item: EngineItem) -> Option<EngineItem> {
        self.metrics.queued(queue, item.queued.elapsed());
        if item.done.is_wanted() {
            return Some(item);
        }
        self.fail(item, Failure::transient(Stage::Cancelled, "nobody waits for it any more"));
        None
    }

    /// Reports the outcome of an item that failed or is done. Returns any other.
    pub(crate) fn end(&self, mut item: EngineItem, done: Result<(), Failure>) -> Option<EngineItem> {
        match (done, item.form.take()) {
            (Err(failure), _) => self.fail(item, failure),
            (Ok(()), Some(Form::Done(output))) => {
                self.left(&item);
                self.tell(item, Ok(output));
            }
            (Ok(()), form) => return Some(EngineItem { form, ..item }),
        }
        None
    }

    /// Fails an item that is not in a batch yet.
    fn fail(&self, item: EngineItem, failure: Failure) {
        self.left(&item);
        self.tell(item, Err(failure));
    }

    /// Records that an item joined a batch, or ended before.
    pub(crate) fn left(&self, item: &EngineItem) {
        self.tasks[item.task].coming.fetch_sub(1, SeqCst);
    }

    pub(crate) fn tell(&self, item: EngineItem, outcome: Result<Output, Failure>) {
        let EngineItem { done, span, place, form, .. } = item;
        // Frees the place before reporting the outcome, so that the receiver can submit the next request.
        drop((place, form));
        span.in_scope(|| done.tell(outcome));
    }

    pub(crate) fn note(&self, stage: &'static str, item: &EngineItem, start: Instant, ok: bool) {
        self.metrics.stage(stage, &self.tasks[item.task].name, start.elapsed(), ok);
    }

    pub(crate) fn abort(&self) {
        self.stopped.cancel();
        self.files.close();
        self.tasks.iter().for_each(|task| task.ready.abort());
    }
}
