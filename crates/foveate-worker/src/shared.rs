//! What the engine's threads share: requests on their way, the queues before each stage, and the limits.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use foveate_net::Client;
use foveate_pipeline::Queue;
use foveate_queue::ImageRef;
use foveate_source::FetchOpener;

use crate::erased::{AnyTask, Prepared};
use crate::hosts::Hosts;
use crate::limits::{Budget, Share};
use crate::metrics::Metrics;
use crate::watchdog::Watchdog;
use crate::{Batching, Done, Failure, File, Image, Output, lock};

/// What the engine's threads share.
pub(crate) struct Shared {
    /// Before downloading.
    pub(crate) downloads: Queue<Item>,
    /// Before downloading, too: those whose servers are busy enough.
    pub(crate) hosts: Hosts<Item>,
    /// Before preprocessing.
    pub(crate) files: Queue<Item>,
    pub(crate) tasks: Vec<NamedTask>,
    pub(crate) downloaders: usize,
    pub(crate) workers: usize,
    pub(crate) requests: Budget,
    pub(crate) bytes: Budget,
    pub(crate) max_bytes: u64,
    pub(crate) client: Option<Arc<Client>>,
    pub(crate) objects: Option<FetchOpener>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) watchdog: Watchdog,
    pub(crate) stopping: AtomicBool,
    /// When the last request was finished, or the first one began.
    pub(crate) finished: Mutex<Instant>,
    pub(crate) stall: Duration,
}

/// A task under its name, and what waits for it.
pub(crate) struct NamedTask {
    pub(crate) name: String,
    pub(crate) task: Arc<dyn AnyTask>,
    pub(crate) batching: Batching,
    /// Before processing.
    pub(crate) ready: Queue<Item>,
    /// Requests for this task that are not in a batch yet.
    pub(crate) coming: AtomicUsize,
}

/// A request on its way.
pub(crate) struct Item {
    pub(crate) id: String,
    pub(crate) task: usize,
    /// `None` once the task has it.
    pub(crate) form: Option<Form>,
    pub(crate) metadata: Option<String>,
    pub(crate) done: Done,
    pub(crate) span: tracing::Span,
    /// Its place among the requests under way.
    pub(crate) _place: Share,
}

/// What there is of the image.
pub(crate) enum Form {
    /// To be downloaded.
    At(ImageRef),
    File(File),
    Ready(Prepared),
}

impl From<Image> for Form {
    fn from(image: Image) -> Self {
        match image {
            Image::At(reference) => Self::At(reference),
            Image::Bytes(bytes) => Self::File(File::new(bytes, None)),
        }
    }
}

impl Item {
    /// The server that the image is still on.
    pub(crate) fn server(&self) -> Option<String> {
        match &self.form {
            Some(Form::At(ImageRef::Url(url))) => foveate_net::server(url),
            _ => None,
        }
    }
}

impl Shared {
    /// Puts an item before the stage that is to take it next.
    pub(crate) fn pass_on(&self, item: Item) {
        let next = match item.form {
            Some(Form::At(_)) if self.downloaders > 0 => &self.downloads,
            Some(Form::At(_) | Form::File(_)) if self.workers > 0 => &self.files,
            _ => &self.tasks[item.task].ready,
        };
        // Refused only when the engine stops: dropping the item tells that.
        let _ = next.push(item, 0);
    }

    /// An item that fails before it gets into a batch.
    pub(crate) fn fail(&self, item: Item, failure: Failure) {
        self.left(&item);
        self.tell(item, Err(failure));
    }

    /// An item gets into a batch, or fails before.
    pub(crate) fn left(&self, item: &Item) {
        self.tasks[item.task].coming.fetch_sub(1, SeqCst);
    }

    pub(crate) fn tell(&self, item: Item, outcome: Result<Output, Failure>) {
        let Item { done, span, _place, form, .. } = item;
        // The place is free before the outcome is told, so that who waits for it may send the next.
        drop((_place, form));
        self.progressed();
        span.in_scope(|| done.tell(outcome));
    }

    pub(crate) fn progressed(&self) {
        *lock(&self.finished) = Instant::now();
    }

    pub(crate) fn abort(&self) {
        self.downloads.abort();
        self.files.abort();
        self.tasks.iter().for_each(|task| task.ready.abort());
        // Dropped outside of the lock: each tells its outcome.
        drop(self.hosts.clear());
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = (String, &Queue<Item>)> {
        let first = [("download".to_owned(), &self.downloads), ("preprocess".to_owned(), &self.files)];
        first.into_iter().chain(self.tasks.iter().map(|task| (format!("process {}", task.name), &task.ready)))
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
