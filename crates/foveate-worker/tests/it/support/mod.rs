//! An in-process queue, a photo server, and a task, for tests of the worker.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use foveate_net::photo_server::{PhotoServer, PhotoServerOptions};
use foveate_net::webhook::Secrets;
use foveate_net::{Client, ClientOptions};
use foveate_queue::{Callback, ImageRef, Job, JobQueue, MemoryQueue, Message};
use foveate_worker::{
    Backoff, Batching, Callbacks, Embedding, Engine, InTurn, IoRuntime, Output, Received, Task, TaskError,
    WorkerOptions,
};

pub(crate) const SECRET: &str = "whsec_c2VjcmV0LW9mLXRlc3RzLW9ubHktMzItYnl0ZXM=";

/// Embeds a file as its length; slow on request, and fails on request.
#[derive(Clone, Default)]
pub(crate) struct Length {
    pub(crate) time: Duration,
    pub(crate) broken: Arc<AtomicBool>,
    pub(crate) done: Arc<AtomicUsize>,
    pub(crate) largest_batch: Arc<AtomicUsize>,
}

impl Task for Length {
    type Prepared = (u32, u64);
    type Lane = InTurn<(u32, u64)>;

    fn prepare(&self, received: Received<'_>) -> Result<(u32, u64), TaskError> {
        let bytes = &*received.file;
        // Failures as a decoder reports them: a truncated image, or too many pixels.
        let is_jpeg = bytes.starts_with(&[0xff, 0xd8]);
        if bytes.starts_with(b"\x89PNG") || (is_jpeg && bytes.len() < 1_000) {
            return Err(TaskError::image("too many pixels").at("decode"));
        }
        Ok((bytes.len() as u32, 7))
    }

    fn lane(self: Arc<Self>) -> Option<Self::Lane> {
        Some(InTurn::new(move |batch| {
            std::thread::sleep(self.time);
            if self.broken.load(SeqCst) {
                return Err(TaskError::machine("the device is gone"));
            }
            self.done.fetch_add(batch.len(), SeqCst);
            self.largest_batch.fetch_max(batch.len(), SeqCst);
            let output = |&(length, xxh3): &(u32, u64)| {
                Output::Vector(Embedding { vector: vec![length as f32, 1.0], width: 3, height: 2, xxh3, tokens: 0 })
            };
            Ok(batch.iter().map(output).collect())
        }))
    }
}

pub(crate) struct Setup {
    pub(crate) queue: Arc<MemoryQueue>,
    pub(crate) runtime: IoRuntime,
    pub(crate) server: PhotoServer,
    pub(crate) task: Length,
}

impl Setup {
    pub(crate) fn new(lease: Duration, max_receive: u32) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/photos");
        let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "jpg"));
        files.sort();
        let photos = files.iter().map(|path| std::fs::read(path).unwrap().into()).collect();
        let server = PhotoServer::start(photos, PhotoServerOptions::default()).unwrap();
        let queue = Arc::new(MemoryQueue::new("jobs", lease, max_receive));
        Self { queue, runtime: IoRuntime::start().unwrap(), server, task: Length::default() }
    }

    /// Waits for a call of the queue.
    pub(crate) fn wait_for<T>(&self, call: impl Future<Output = T>) -> T {
        self.runtime.handle().block_on(call)
    }

    pub(crate) fn client(&self) -> Arc<Client> {
        // Any port: some tests use one without a listener.
        let host = self.server.address().ip().to_string();
        let timeout = Duration::from_secs(2);
        Arc::new(Client::new(ClientOptions { allow_private: vec![host], timeout, ..ClientOptions::default() }).unwrap())
    }

    pub(crate) fn engine(&self) -> Engine {
        let batching = Batching { max: 4, delay: Duration::from_millis(5), lanes: 1 };
        let engine = Engine::builder().client(self.client()).downloads(8).workers(2);
        let engine = engine.runtime(self.runtime.handle().clone());
        engine.task("embed", self.task.clone(), batching).build().unwrap()
    }

    pub(crate) fn options(&self) -> WorkerOptions {
        let secrets = Some(Arc::new(Secrets::parse(SECRET).unwrap()));
        let callbacks = Callbacks { secrets, ..Callbacks::new(Some(self.client())) };
        let brief = Backoff { base: Duration::from_millis(20), max: Duration::from_millis(100) };
        let queue: Arc<dyn JobQueue> = self.queue.clone();
        let options = WorkerOptions::new(vec![queue], callbacks);
        // Without time, a message has as many tries as its queue says.
        let retry_for = Duration::ZERO;
        WorkerOptions { backoff: brief, callback_backoff: brief, refused: brief, retry_for, ..options }
    }

    pub(crate) fn send(&self, paths: impl IntoIterator<Item = impl AsRef<str>>) {
        for path in paths {
            let mut job = Job::new(ImageRef::Url(self.server.url(path.as_ref())));
            job.callback = Some(Callback { url: self.server.url("/callback") });
            job.metadata = Some(r#"{"n": 1.50}"#.to_owned());
            self.send_body(path.as_ref(), job.to_json().unwrap());
        }
    }

    pub(crate) fn send_body(&self, id: &str, body: Vec<u8>) {
        self.wait_for(self.queue.send(&[Message { id: id.to_owned(), body }])).remove(0).unwrap();
    }

    /// Waits until every message is settled.
    pub(crate) fn wait(&self) {
        wait_until(Duration::from_secs(30), || {
            let depth = self.wait_for(self.queue.depth()).unwrap();
            depth.waiting + depth.leased == 0
        });
    }

    pub(crate) fn called(&self) -> Vec<String> {
        self.server.callbacks().received().into_iter().map(|(id, _)| id).collect()
    }

    /// Stage and reason of each dead letter, by id.
    pub(crate) fn dead(&self) -> BTreeMap<String, (String, String)> {
        let letters = self.queue.dead_letters();
        letters.into_iter().map(|(delivery, why)| (delivery.id, (why.stage, why.reason))).collect()
    }
}

pub(crate) fn wait_until(patience: Duration, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + patience;
    while !is_so() {
        assert!(Instant::now() < until, "it took too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn numbered(kind: &str, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |n| format!("/{kind}/{n}"))
}
