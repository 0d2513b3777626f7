//! The engine's threads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use foveate_core::error_chain;
use foveate_decode::sniff;
use foveate_pipeline::Popped;
use foveate_queue::ImageRef;
use foveate_source::{AllowedObjects, Fetch, FetchError, Item as Object};

use crate::engine_state::{EngineItem, EngineState, Form, NamedTask};
use crate::erased::{AnyLane, PreparedOrKnown};
use crate::site_queue::Next;
use crate::watchdog::ThreadWatch;
use crate::{EngineError, Failure, File, Received, Setting, Stage, TaskError};

/// Longest wait for memory of a download. The message then waits in its queue.
const MEMORY_WAIT: Duration = Duration::from_secs(10);

/// One thread of the engine, with its own state.
pub(crate) struct EngineThread {
    shared: Arc<EngineState>,
    watch: ThreadWatch,
    objects: Option<Box<dyn Fetch>>,
}

/// Starts all threads, one for each of the `lanes` of each task.
pub(crate) fn start(
    shared: &Arc<EngineState>,
    lanes: Vec<Vec<Box<dyn AnyLane>>>,
) -> Result<Vec<JoinHandle<()>>, EngineError> {
    let mut threads = Vec::new();
    for i in 0..shared.downloaders {
        threads.push(spawn(shared, format!("download {i}"), EngineThread::downloads)?);
    }
    for i in 0..shared.workers {
        threads.push(spawn(shared, format!("preprocess {i}"), EngineThread::files)?);
    }
    for (i, lanes) in lanes.into_iter().enumerate() {
        for (n, lane) in lanes.into_iter().enumerate() {
            let name = format!("process {} {n}", shared.tasks[i].name);
            threads.push(spawn(shared, name, move |thread| thread.lane(i, lane))?);
        }
    }
    Ok(threads)
}

fn spawn(
    shared: &Arc<EngineState>,
    name: String,
    run: impl FnOnce(EngineThread) + Send + 'static,
) -> Result<JoinHandle<()>, EngineError> {
    let thread = EngineThread::new(shared, &name)?;
    std::thread::Builder::new().name(name).spawn(move || run(thread)).map_err(EngineError::Thread)
}

impl EngineThread {
    fn new(shared: &Arc<EngineState>, name: &str) -> Result<Self, EngineError> {
        let objects = shared.objects.as_ref().map(AllowedObjects::fetch);
        Ok(Self { shared: Arc::clone(shared), watch: shared.watchdog.watch(name, shared.stall), objects })
    }

    fn downloads(mut self) {
        let shared = Arc::clone(&self.shared);
        while let Some(next) = shared.downloads.pop() {
            match next {
                Next::Item(item, turn) => {
                    let downloaded = self.step("download", item, Self::downloaded);
                    drop(turn);
                    downloaded.into_iter().for_each(|item| shared.pass_on(item));
                }
                Next::Excess(items) => {
                    let slow =
                        Failure::untried(Stage::Download, "its server is slow, and enough downloads wait for it");
                    items.into_iter().for_each(|item| shared.fail(item, slow.clone()));
                }
            }
        }
    }

    fn files(mut self) {
        let shared = Arc::clone(&self.shared);
        while let Some(item) = shared.files.pop() {
            if let Some(item) = self.step("preprocess", item, Self::prepared) {
                shared.pass_on(item);
            }
        }
    }

    /// Keeps the lane full of batches, and reports each image's outcome.
    fn lane(mut self, task: usize, mut lane: Box<dyn AnyLane>) {
        let shared = Arc::clone(&self.shared);
        let task = &shared.tasks[task];
        let mut open = GatheredBatch::default();
        let mut under_way = VecDeque::new();
        loop {
            let has_room = under_way.len() < lane.depth();
            let batch = if has_room { self.gather(task, &mut open, under_way.is_empty()) } else { None };
            let _busy = self.watch.busy();
            match batch {
                Some(batch) => under_way.push_back(UnderWay::submit(lane.as_mut(), batch)),
                None => match under_way.pop_front() {
                    Some(batch) => batch.collect(lane.as_mut(), &shared, task),
                    None => break,
                },
            }
        }
    }

    /// Returns the next batch once it is full or its first image has waited for the maximum delay. While no other batch
    /// is under way (`is_idle`), an image waits only if another one is coming. Returns `None` if no batch is due but
    /// others are under way, or at the end.
    fn gather(&mut self, task: &NamedTask, open: &mut GatheredBatch, is_idle: bool) -> Option<Vec<EngineItem>> {
        while open.items.len() < task.batching.max {
            let popped = match is_idle && open.items.is_empty() {
                true => task.ready.pop().map_or(Popped::Closed, Popped::Entry),
                false => task.ready.pop_until(open.wait_until(task, is_idle)),
            };
            let Popped::Entry(item) = popped else { break };
            open.add(self.take(item), task);
        }
        let is_due = is_idle || open.items.len() >= task.batching.max || open.is_late();
        (is_due && !open.items.is_empty()).then(|| open.take())
    }

    /// Prepares an item for a batch.
    fn take(&mut self, item: EngineItem) -> Option<EngineItem> {
        let queue = format!("process {}", self.shared.tasks[item.task].name);
        let item = self.step(&queue, item, Self::prepared)?;
        self.shared.left(&item);
        Some(item)
    }

    /// Runs one step of the work of an item that left `queue`, unless the item is no longer wanted. Reports the outcome
    /// of an item that fails or is done.
    fn step(
        &mut self,
        queue: &str,
        mut item: EngineItem,
        work: impl FnOnce(&mut Self, &mut EngineItem) -> Result<(), Failure>,
    ) -> Option<EngineItem> {
        self.shared.metrics.queued(queue, item.queued.elapsed());
        let done = match item.done.is_wanted() {
            true => work(self, &mut item),
            false => Err(Failure::transient(Stage::Cancelled, "nobody waits for it any more")),
        };
        let outcome = match (done, item.form.take()) {
            (Err(failure), _) => Err(failure),
            (Ok(()), Some(Form::Done(output))) => Ok(output),
            (Ok(()), form) => return Some(EngineItem { form, ..item }),
        };
        self.shared.left(&item);
        self.shared.tell(item, outcome);
        None
    }

    /// Downloads the file unless it is here already.
    fn downloaded(&mut self, item: &mut EngineItem) -> Result<(), Failure> {
        let Some(Form::At(reference)) = &item.form else { return Ok(()) };
        let reference = reference.clone();
        let span = tracing::info_span!(parent: &item.span, "download");
        let _entered = span.enter();
        let start = Instant::now();
        let downloaded = self.download(&reference);
        self.note("download", item, start, downloaded.is_ok());
        item.form = Some(Form::File(downloaded?));
        Ok(())
    }

    fn download(&mut self, reference: &ImageRef) -> Result<File, Failure> {
        let Self { shared, watch, objects } = self;
        let mut bytes = Vec::new();
        let mut share = shared.bytes.growing();
        let busy = watch.busy();
        let mut grow = |bytes| watch.pause(|| share.grow(bytes, MEMORY_WAIT));
        match reference {
            ImageRef::Url(url) => get(shared, url, &mut grow, &mut bytes)?,
            ImageRef::Object(key) => fetch(shared, objects.as_deref_mut(), key, &mut grow, &mut bytes)?,
        }
        drop(busy);
        share.settle(bytes.len() as u64);
        Ok(File::new(bytes, Some(share)))
    }

    /// Prepares the image or text. Downloads an image first if no other thread does.
    fn prepared(&mut self, item: &mut EngineItem) -> Result<(), Failure> {
        self.downloaded(item)?;
        let Some(form) = item.form.take_if(|form| matches!(form, Form::File(_) | Form::Text(_))) else { return Ok(()) };
        let span = tracing::info_span!(parent: &item.span, "preprocess");
        let _entered = span.enter();
        let _busy = self.watch.busy();
        let start = Instant::now();
        let prepared = self.prepare(form, item);
        self.note("preprocess", item, start, prepared.is_ok());
        item.form = Some(match prepared? {
            PreparedOrKnown::Prepared(image) => Form::Ready(image),
            PreparedOrKnown::Known(output) => {
                self.shared.metrics.cache_hit(&self.shared.tasks[item.task].name);
                Form::Done(output)
            }
        });
        Ok(())
    }

    fn prepare(&self, form: Form, item: &EngineItem) -> Result<PreparedOrKnown, Failure> {
        let NamedTask { name, task, .. } = &self.shared.tasks[item.task];
        let prepared = match form {
            Form::File(file) => {
                // Rejects data that is not an image before the task sees it.
                sniff(&file).map_err(|error| Failure::permanent(Stage::Within("decode"), error_chain(&error)))?;
                task.prepare_image(Received { id: &item.id, file, metadata: item.metadata.as_deref() })
            }
            Form::Text(text) if task.takes_texts() => task.prepare_words(&text),
            Form::Text(_) => {
                let reason = format!("a text, and the task '{name}' takes images alone here");
                return Err(Failure::of_setting(Setting::Texts, Stage::Preprocess, reason));
            }
            Form::At(_) | Form::Ready(_) | Form::Done(_) => unreachable!("files and texts are prepared"),
        };
        prepared.map_err(|error| failure(error, Stage::Preprocess))
    }

    fn note(&self, stage: &'static str, item: &EngineItem, start: Instant, ok: bool) {
        self.shared.metrics.stage(stage, &self.shared.tasks[item.task].name, start.elapsed(), ok);
    }
}

/// Downloads a URL. `grow` asks for memory.
fn get(
    shared: &EngineState,
    url: &str,
    grow: &mut (dyn FnMut(u64) -> bool + Send),
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let client = shared.client.as_ref().ok_or_else(|| no(Setting::ImageHost, "URLs"))?;
    let mut has_room = true;
    let mut admit = |bytes| {
        has_room = grow(bytes);
        has_room
    };
    let got = shared.runtime.block_on(client.get(url, &mut admit, out));
    got.map(drop).map_err(|error| Failure {
        untried: !has_room,
        transient: error.transient,
        retry_after: error.retry_after,
        reached: error.reached,
        setting: error.rule.map(|_| Setting::ImageHost),
        ..Failure::permanent(Stage::Download, error.reason)
    })
}

/// Reads an object.
fn fetch(
    shared: &EngineState,
    objects: Option<&mut (dyn Fetch + 'static)>,
    key: &str,
    grow: &mut (dyn FnMut(u64) -> bool + Send),
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let objects = objects.ok_or_else(|| no(Setting::Objects, "objects"))?;
    if !grow(shared.max_bytes) {
        return Err(Failure::untried(Stage::Download, "there is no memory for an object now"));
    }
    let object = Object { id: key.to_owned(), locator: key.as_bytes().to_vec(), ..Object::default() };
    objects.fetch(&object, out).map_err(|error| Failure {
        // Refused credentials are this worker's, and may be others in a minute.
        transient: error.is_transient() || matches!(error, FetchError::Denied(_)),
        ..Failure::permanent(Stage::Download, error_chain(&error))
    })
}

fn no(setting: Setting, what: &str) -> Failure {
    Failure::of_setting(setting, Stage::Download, format!("this worker reads no {what}"))
}

fn failure(error: TaskError, stage: Stage) -> Failure {
    let TaskError { stage: within, reason, transient } = error;
    Failure { transient, ..Failure::permanent(within.map_or(stage, Stage::Within), reason) }
}

/// A batch that is being filled.
#[derive(Default)]
struct GatheredBatch {
    items: Vec<EngineItem>,
    /// The time at which its first image has waited long enough.
    deadline: Option<Instant>,
}

impl GatheredBatch {
    fn add(&mut self, item: Option<EngineItem>, task: &NamedTask) {
        let Some(item) = item else { return };
        self.deadline.get_or_insert_with(|| Instant::now() + task.batching.delay);
        self.items.push(item);
    }

    /// The deadline for one more image: now if other batches are under way or no image is coming.
    fn wait_until(&self, task: &NamedTask, is_idle: bool) -> Instant {
        let waits = is_idle && task.coming.load(SeqCst) > 0;
        self.deadline.filter(|_| waits).unwrap_or_else(Instant::now)
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    fn take(&mut self) -> Vec<EngineItem> {
        self.deadline = None;
        std::mem::take(&mut self.items)
    }
}

/// A batch that a lane holds.
struct UnderWay {
    items: Vec<EngineItem>,
    /// The items' spans, open while the batch is under way.
    spans: Vec<tracing::Span>,
    start: Instant,
}

impl UnderWay {
    fn submit(lane: &mut dyn AnyLane, mut items: Vec<EngineItem>) -> Self {
        let batch = items.len();
        let spans = items.iter().map(|item| tracing::info_span!(parent: &item.span, "process", batch)).collect();
        let start = Instant::now();
        let images = items.iter_mut().map(|item| match item.form.take() {
            Some(Form::Ready(image)) => image,
            _ => unreachable!("gathered when ready"),
        });
        lane.submit(images.collect());
        Self { items, spans, start }
    }

    /// Waits for the batch, and reports the outcome of each image.
    fn collect(self, lane: &mut dyn AnyLane, shared: &EngineState, task: &NamedTask) {
        let Self { items, spans, start } = self;
        let answers = lane.collect();
        let failed = answers.iter().filter(|answer| answer.is_err()).count() as u64;
        shared.metrics.batch(&task.name, start.elapsed(), answers.len() as u64 - failed, failed);
        drop(spans);
        for (item, answer) in items.into_iter().zip(answers) {
            shared.tell(item, answer.map_err(|error| failure(error, Stage::Process)));
        }
    }
}
