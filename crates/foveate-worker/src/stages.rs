//! What the engine's threads do.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use std::time::Instant;

use foveate_decode::sniff;
use foveate_pipeline::Popped;
use foveate_queue::ImageRef;
use foveate_source::{Fetch, Item as Object};

use crate::engine::{EngineError, Form, Item, Lane, Shared};
use crate::limits::Share;
use crate::watchdog::ThreadWatch;
use crate::{Failure, Image, Picture, Stage, TaskError};

/// One thread of the engine, with what it needs for itself.
pub(crate) struct Stages {
    shared: Arc<Shared>,
    watch: ThreadWatch,
    objects: Option<Box<dyn Fetch>>,
}

/// Starts all of them.
pub(crate) fn start(shared: &Arc<Shared>) -> Result<Vec<JoinHandle<()>>, EngineError> {
    let mut threads = Vec::new();
    let mut spawn = |name: String, run: Box<dyn FnOnce(Stages) + Send>| {
        let stages = Stages::new(shared, &name)?;
        let thread = std::thread::Builder::new().name(name).spawn(move || run(stages)).map_err(EngineError::Thread)?;
        threads.push(thread);
        Ok::<(), EngineError>(())
    };
    for i in 0..shared.downloaders {
        spawn(format!("download {i}"), Box::new(|stages| stages.downloads()))?;
    }
    for i in 0..shared.workers {
        spawn(format!("preprocess {i}"), Box::new(|stages| stages.files()))?;
    }
    for (i, lane) in shared.lanes.iter().enumerate() {
        for n in 0..lane.batching.lanes {
            spawn(format!("process {} {n}", lane.name), Box::new(move |stages| stages.lane(i)))?;
        }
    }
    Ok(threads)
}

impl Stages {
    fn new(shared: &Arc<Shared>, name: &str) -> Result<Self, EngineError> {
        let objects = shared.objects.as_ref().map(|open| open()).transpose()?;
        Ok(Self { shared: Arc::clone(shared), watch: shared.watchdog.watch(name, shared.stall), objects })
    }

    fn downloads(mut self) {
        let shared = Arc::clone(&self.shared);
        while let Some(item) = shared.downloads.pop() {
            let server = item.server();
            let mut next = match &server {
                Some(server) => shared.hosts.enter(server, item),
                None => Some(item),
            };
            // One thread serves the line of a server, if there is one, to its end.
            while let Some(item) = next {
                if let Some(item) = self.step(item, Self::downloaded) {
                    shared.pass_on(item);
                }
                next = server.as_deref().and_then(|server| shared.hosts.leave(server));
            }
        }
    }

    fn files(mut self) {
        let shared = Arc::clone(&self.shared);
        while let Some(item) = shared.files.pop() {
            if let Some(item) = self.step(item, Self::prepared) {
                shared.pass_on(item);
            }
        }
    }

    fn lane(mut self, lane: usize) {
        let shared = Arc::clone(&self.shared);
        let lane = &shared.lanes[lane];
        while let Some(batch) = self.gather(lane) {
            let busy = self.watch.busy();
            process(&shared, lane, batch);
            drop(busy);
        }
    }

    /// A batch: full, or as full as it became in the time that its first image may wait. An image for which no other one
    /// is on its way does not wait at all.
    fn gather(&mut self, lane: &Lane) -> Option<Vec<Item>> {
        let mut batch = Vec::with_capacity(lane.batching.max);
        while batch.is_empty() {
            batch.extend(self.take(lane.ready.pop()?));
        }
        let deadline = Instant::now() + lane.batching.delay;
        while batch.len() < lane.batching.max {
            let until = if lane.coming.load(SeqCst) == 0 { Instant::now() } else { deadline };
            match lane.ready.pop_until(until) {
                Popped::Entry(item) => batch.extend(self.take(item)),
                Popped::TimedOut | Popped::Closed => break,
            }
        }
        Some(batch)
    }

    /// Takes an item into a batch.
    fn take(&mut self, item: Item) -> Option<Item> {
        let item = self.step(item, Self::prepared)?;
        self.shared.left(&item);
        Some(item)
    }

    /// Takes an item further, unless nobody wants it any more; an item that fails is told so.
    fn step(&mut self, mut item: Item, work: impl FnOnce(&mut Self, &mut Item) -> Result<(), Failure>) -> Option<Item> {
        let done = match item.done.is_wanted() {
            true => work(self, &mut item),
            false => Err(Failure::transient(Stage::Cancelled, "nobody waits for it any more")),
        };
        match done {
            Ok(()) => Some(item),
            Err(failure) => {
                self.shared.fail(item, failure);
                None
            }
        }
    }

    /// Gets the file, where it is not here yet.
    fn downloaded(&mut self, item: &mut Item) -> Result<(), Failure> {
        let Form::Image(Image::At(reference)) = &item.form else { return Ok(()) };
        let reference = reference.clone();
        let span = tracing::info_span!(parent: &item.span, "download");
        let _entered = span.enter();
        let start = Instant::now();
        let downloaded = self.download(&reference);
        self.note("download", item, start, downloaded.is_ok());
        let (bytes, share) = downloaded?;
        item.form = Form::Image(Image::Bytes(bytes));
        item.bytes = share;
        Ok(())
    }

    fn download(&mut self, reference: &ImageRef) -> Result<(Vec<u8>, Option<Share>), Failure> {
        let mut bytes = Vec::new();
        let mut share = None;
        let busy = self.watch.busy();
        match reference {
            ImageRef::Url(url) => {
                let mut admit = |most| share = Some(self.watch.pause(|| self.shared.bytes.take(most)));
                let client = self.shared.client.as_ref().ok_or_else(|| no("URLs"))?;
                client.get(url, &mut admit, &mut bytes).map_err(|error| Failure {
                    stage: Stage::Download,
                    reason: error.reason,
                    transient: error.transient,
                    retry_after: error.retry_after,
                })?;
            }
            ImageRef::Object(key) => {
                share = Some(self.watch.pause(|| self.shared.bytes.take(self.shared.max_bytes)));
                let objects = self.objects.as_mut().ok_or_else(|| no("objects"))?;
                let object = Object { index: 0, id: key.clone(), locator: key.clone().into_bytes(), fault: None };
                objects.fetch(&object, &mut bytes).map_err(|error| Failure {
                    stage: Stage::Download,
                    transient: error.is_transient(),
                    reason: error.to_string(),
                    retry_after: None,
                })?;
            }
        }
        drop(busy);
        if let Some(share) = &mut share {
            share.shrink(bytes.len() as u64);
        }
        Ok((bytes, share))
    }

    /// Makes the image ready, and downloads it first where no other thread does that.
    fn prepared(&mut self, item: &mut Item) -> Result<(), Failure> {
        self.downloaded(item)?;
        let Form::Image(Image::Bytes(bytes)) = &item.form else { return Ok(()) };
        let span = tracing::info_span!(parent: &item.span, "preprocess");
        let _entered = span.enter();
        let _busy = self.watch.busy();
        let start = Instant::now();
        let picture = Picture { id: &item.id, bytes, metadata: item.metadata.as_deref() };
        // What is no image at all is told before a task sees it: something else was at the address, or was sent.
        let stage = if item.bytes.is_some() { Stage::Download } else { Stage::Within("decode") };
        let prepared = sniff(bytes).map_err(|error| Failure::permanent(stage, error.to_string()));
        let task = &self.shared.lanes[item.lane].task;
        let prepared = prepared.and_then(|_| task.prepare(&picture).map_err(|error| failure(error, Stage::Preprocess)));
        self.note("preprocess", item, start, prepared.is_ok());
        item.form = Form::Ready(prepared?);
        item.bytes = None;
        Ok(())
    }

    fn note(&self, stage: &'static str, item: &Item, start: Instant, ok: bool) {
        self.shared.metrics.stage(stage, &self.shared.lanes[item.lane].name, start.elapsed(), ok);
    }
}

fn no(what: &str) -> Failure {
    Failure::permanent(Stage::Download, format!("this worker reads no {what}"))
}

fn failure(error: TaskError, stage: Stage) -> Failure {
    let TaskError { stage: within, reason, transient } = error;
    Failure { stage: within.map_or(stage, Stage::Within), reason, transient, retry_after: None }
}

/// Processes a batch, and tells each of its images the outcome.
fn process(shared: &Shared, lane: &Lane, batch: Vec<Item>) {
    let (mut items, mut images) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
    for mut item in batch {
        let empty = Form::Image(Image::Bytes(Vec::new()));
        let Form::Ready(image) = std::mem::replace(&mut item.form, empty) else { unreachable!("gathered when ready") };
        images.push(image);
        items.push(item);
    }
    let spans: Vec<_> =
        items.iter().map(|item| tracing::info_span!(parent: &item.span, "process", batch = items.len())).collect();
    let start = Instant::now();
    let outcomes = lane.task.process(images);
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count() as u64;
    shared.metrics.batch(&lane.name, start.elapsed(), outcomes.len() as u64 - failed, failed);
    drop(spans);
    for (item, outcome) in items.into_iter().zip(outcomes) {
        shared.tell(item, outcome.map_err(|error| failure(error, Stage::Process)));
    }
}
