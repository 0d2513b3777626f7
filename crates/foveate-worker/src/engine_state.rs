//! The state that the engine's threads share: requests under way, the queues before each stage, and the limits.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use foveate_net::Client;
use foveate_pipeline::Queue;
use foveate_queue::ImageRef;
use foveate_source::AllowedObjects;
use tokio::runtime::Handle;

use crate::erased::{AnyTask, Prepared};
use crate::limits::{Budget, BudgetShare};
use crate::metrics::WorkerMetrics;
use crate::site_queue::SiteQueue;
use crate::watchdog::Watchdog;
use crate::{Batching, Done, Failure, File, Image, Output, lock};

/// The state that the engine's threads share.
pub(crate) struct EngineState {
    /// Requests that wait for a download.
    pub(crate) downloads: SiteQueue<EngineItem>,
    /// Requests that wait for preprocessing.
    pub(crate) files: Queue<EngineItem>,
    pub(crate) tasks: Vec<NamedTask>,
    pub(crate) downloaders: usize,
    pub(crate) workers: usize,
    pub(crate) requests: Budget,
    pub(crate) bytes: Budget,
    pub(crate) max_bytes: u64,
    pub(crate) runtime: Handle,
    pub(crate) client: Option<Arc<Client>>,
    pub(crate) objects: Option<AllowedObjects>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    pub(crate) watchdog: Watchdog,
    pub(crate) stopping: AtomicBool,
    /// The time at which the last request finished, or the first one began.
    pub(crate) finished: Mutex<Instant>,
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
    /// `None` once the task has taken it.
    pub(crate) form: Option<Form>,
    pub(crate) metadata: Option<String>,
    pub(crate) done: Done,
    pub(crate) span: tracing::Span,
    /// The time at which it joined its current queue.
    pub(crate) queued: Instant,
    /// Its share of the limit on requests.
    pub(crate) _place: BudgetShare,
}

/// The current form of an image.
pub(crate) enum Form {
    /// Not downloaded yet.
    At(ImageRef),
    File(File),
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

impl EngineItem {
    /// The site or the bucket to download from; empty if there is none.
    fn site(&self) -> String {
        match &self.form {
            Some(Form::At(ImageRef::Url(url))) => foveate_net::site(url).unwrap_or_default(),
            Some(Form::At(ImageRef::Object(address))) => bucket(address).to_owned(),
            _ => String::new(),
        }
    }
}

/// The bucket of an object's address.
pub(crate) fn bucket(address: &str) -> &str {
    let key = address.find("://").and_then(|scheme| address[scheme + 3..].find('/').map(|slash| scheme + 3 + slash));
    &address[..key.unwrap_or(address.len())]
}

impl EngineState {
    /// Queues an item for its next stage.
    pub(crate) fn pass_on(&self, mut item: EngineItem) {
        item.queued = Instant::now();
        let next = match &item.form {
            Some(Form::At(image)) if self.downloaders > 0 => {
                let most = if matches!(image, ImageRef::Url(_)) { self.per_host() } else { self.downloaders };
                // Refused only when the engine stops, as below.
                let _ = self.downloads.push(&item.site(), most, item);
                return;
            }
            Some(Form::At(_) | Form::File(_) | Form::Text(_)) if self.workers > 0 => &self.files,
            _ => &self.tasks[item.task].ready,
        };
        // Refused only when the engine stops: dropping the item then reports the failure.
        let _ = next.push(item, 0);
    }

    /// Most downloads from one host at once.
    fn per_host(&self) -> usize {
        self.client.as_ref().map_or(usize::MAX, |client| client.options().per_host)
    }

    /// Fails an item that is not in a batch yet.
    pub(crate) fn fail(&self, item: EngineItem, failure: Failure) {
        self.left(&item);
        self.tell(item, Err(failure));
    }

    /// Records that an item joined a batch, or failed before.
    pub(crate) fn left(&self, item: &EngineItem) {
        self.tasks[item.task].coming.fetch_sub(1, SeqCst);
    }

    pub(crate) fn tell(&self, item: EngineItem, outcome: Result<Output, Failure>) {
        let EngineItem { done, span, _place, form, .. } = item;
        // Frees the place before reporting the outcome, so that the receiver can submit the next request.
        drop((_place, form));
        self.progressed();
        span.in_scope(|| done.tell(outcome));
    }

    pub(crate) fn progressed(&self) {
        *lock(&self.finished) = Instant::now();
    }

    pub(crate) fn abort(&self) {
        drop(self.downloads.close());
        self.files.abort();
        self.tasks.iter().for_each(|task| task.ready.abort());
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = (String, &Queue<EngineItem>)> {
        let tasks = self.tasks.iter().map(|task| (format!("process {}", task.name), &task.ready));
        std::iter::once(("preprocess".to_owned(), &self.files)).chain(tasks)
    }

    pub(crate) fn moves(&self) -> Result<(), String> {
        let idle = lock(&self.finished).elapsed();
        match self.requests.taken() {
            0 => Ok(()),
            _ if idle <= 2 * self.stall => Ok(()),
            n => Err(format!("{n} requests are under way, and none was finished for {} s", idle.as_secs())),
        }
    }
}
