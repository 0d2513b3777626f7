//! The engine's threads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use std::time::Instant;

use foveate_core::error_chain;
use foveate_decode::sniff;
use foveate_pipeline::Popped;

use crate::downloads::{decoded, downloaded, pass_on};
use crate::engine_state::{EngineItem, EngineState, Form, NamedTask};
use crate::erased::{AnyLane, PreparedOrKnown};
use crate::{EngineError, Failure, Received, Setting, Stage, TaskError};

/// One thread of the engine.
struct EngineThread {
    shared: Arc<EngineState>,
}

/// Starts all threads, one for each of the `lanes` of each task.
pub(crate) fn start(
    shared: &Arc<EngineState>,
    lanes: Vec<Vec<Box<dyn AnyLane>>>,
) -> Result<Vec<JoinHandle<()>>, EngineError> {
    let mut threads = Vec::new();
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
    let thread = EngineThread { shared: Arc::clone(shared) };
    std::thread::Builder::new().name(name).spawn(move || run(thread)).map_err(EngineError::Thread)
}

impl EngineThread {
    fn files(self) {
        while let Some((item, turn)) = self.shared.files.pop() {
            let begin = Instant::now();
            let prepared = self.prepared("preprocess", item);
            self.shared.files.done(turn, begin.elapsed());
            prepared.into_iter().for_each(|item| pass_on(&self.shared, item));
        }
    }

    /// Keeps the lane full of batches, and reports each image's outcome.
    fn lane(self, task: usize, mut lane: Box<dyn AnyLane>) {
        let shared = Arc::clone(&self.shared);
        let task = &shared.tasks[task];
        let mut open = GatheredBatch::default();
        let mut under_way = VecDeque::new();
        loop {
            let has_room = under_way.len() < lane.depth();
            let batch = if has_room { self.gather(task, &mut open, under_way.is_empty()) } else { None };
            let _busy = shared.progress.begin(1);
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
    fn gather(&self, task: &NamedTask, open: &mut GatheredBatch, is_idle: bool) -> Option<Vec<EngineItem>> {
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
    fn take(&self, item: EngineItem) -> Option<EngineItem> {
        let queue = format!("process {}", self.shared.tasks[item.task].name);
        let item = self.prepared(&queue, item)?;
        self.shared.left(&item);
        Some(item)
    }

    /// Prepares an image or text that left `queue`. Downloads an image first if no task did. Reports the outcome of an
    /// item that fails or is done.
    fn prepared(&self, queue: &str, item: EngineItem) -> Option<EngineItem> {
        let mut item = self.shared.begin(queue, item)?;
        let mut done = Ok(());
        if matches!(item.form, Some(Form::At(_))) {
            done = self.shared.runtime.block_on(downloaded(&self.shared, &mut item));
        }
        let done = done.and_then(|()| self.make_ready(&mut item));
        self.shared.end(item, done)
    }

    fn make_ready(&self, item: &mut EngineItem) -> Result<(), Failure> {
        let is_raw = |form: &mut Form| matches!(form, Form::File(_) | Form::Coded(..) | Form::Text(_));
        let Some(form) = item.form.take_if(is_raw) else { return Ok(()) };
        let span = tracing::info_span!(parent: &item.span, "preprocess");
        let _entered = span.enter();
        let _busy = self.shared.progress.begin(1);
        let start = Instant::now();
        let prepared = self.prepare(form, item);
        self.shared.note("preprocess", item, start, prepared.is_ok());
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
            Form::Coded(coded, file) => return self.prepare(Form::File(decoded(&coded, file)?), item),
            Form::File(file) => {
                // Rejects data that is not an image before the task sees it.
                sniff(&file).map_err(|error| Failure::permanent(Stage::Within("decode"), error_chain(&error)))?;
                item.done.note_decoding(true);
                let prepared = task.prepare_image(Received { id: &item.id, file, metadata: item.metadata.as_deref() });
                item.done.note_decoding(false);
                prepared
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
