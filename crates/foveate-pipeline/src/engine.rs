use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use foveate_core::Stage;
use foveate_decode::{DecodeError, Decoder};
use foveate_encode::Encoder;
use foveate_profile::StageProfiler;
use foveate_resize::{ResizeError, Resizer};
use foveate_sink::{Existing, RunManifest, VectorSink};
use foveate_source::{Fetch, Item, Source};

use crate::batch::{Encoded, FullBatch, OpenBatch, Outcome, Pixels};
use crate::queue::{Pool, Queue, Reorder};
use crate::report::stage_reports;
use crate::stages::{self, OpenPreparer, Opener, Preparer, Progress, Writer, timed};
use crate::{Config, QueueStats, RunError, RunReport};

/// Asks a run to stop at the next batch, commit, and return. Shared with a signal handler.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks.
    pub fn cancel(&self) {
        self.0.store(true, SeqCst);
    }

    /// Whether somebody asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(SeqCst)
    }
}

/// Everything a run is made of: one of each stage, knowing only the stages' traits.
pub struct Pipeline {
    /// The items.
    pub source: Box<dyn Source>,
    /// Makes a decoder for each worker.
    pub decoder: Opener<Box<dyn Decoder>, DecodeError>,
    /// Makes a resizer for each worker.
    pub resizer: Opener<Box<dyn Resizer>, ResizeError>,
    /// The model.
    pub encoder: Box<dyn Encoder>,
    /// The output.
    pub sink: Box<dyn VectorSink>,
    /// How it is carried out.
    pub config: Config,
}

/// The part of a pipeline that workers share.
struct Openers<'a> {
    decoder: &'a Opener<Box<dyn Decoder>, DecodeError>,
    resizer: &'a Opener<Box<dyn Resizer>, ResizeError>,
}

impl OpenPreparer for Openers<'_> {
    fn decoder(&self) -> Result<Box<dyn Decoder>, RunError> {
        Ok((self.decoder)()?)
    }
    fn resizer(&self) -> Result<Box<dyn Resizer>, RunError> {
        Ok((self.resizer)()?)
    }
}

impl Pipeline {
    /// Runs to the end of the source, or until cancelled. Continues an interrupted run when `existing` allows it.
    ///
    /// Every item of the source ends as one row or one failure of the sink, in the source's order, and the result
    /// depends neither on the number of workers nor on how often the run was interrupted.
    pub fn run(
        mut self,
        manifest: &RunManifest,
        existing: Existing,
        cancel: &Cancel,
        progress: &Progress,
    ) -> Result<RunReport, RunError> {
        self.check()?;
        let done = self.sink.begin(manifest, existing)?;
        let range = self.source.range();
        let first = done.0.clamp(range.start, range.end);
        self.source.seek(first)?;

        let profiler = stages::profiler(self.config.trace.clone());
        let started = Instant::now();
        let open = Openers { decoder: &self.decoder, resizer: &self.resizer };
        let mut writer = Writer::new(self.sink.as_mut(), &self.config, &profiler, progress, first);
        let items = Items::new(self.source.as_mut(), first..range.end, self.config.batch as u64);
        let run = Run { config: &self.config, open: &open, profiler: &profiler, progress, cancel };
        let outcome = match self.config.workers {
            0 => run.sequential(items, self.encoder.as_mut(), &mut writer).map(|()| Vec::new()),
            _ => run.threaded(items, self.encoder.as_mut(), &mut writer),
        };
        // What was finished before a fault is kept, unless it is the sink that is at fault.
        let committed = match &outcome {
            Err(RunError::Sink(_)) => Ok(()),
            _ => writer.commit(),
        };
        let queues = outcome?;
        committed?;

        let (rows, failures, settled) = (writer.rows, writer.failures, writer.committed());
        let wall = started.elapsed();
        let inputs = range.end - range.start;
        let published = if settled == range.end {
            let published = self.sink.finish()?;
            check_counts(inputs, published.rows, published.failures)?;
            Some(published)
        } else if cancel.is_cancelled() {
            None
        } else {
            return Err(RunError::Accounting(format!("the run ended at item {settled} of {}", range.end)));
        };
        let config = &self.config;
        let mut totals = profiler.totals();
        let encode_parts = totals.split_off(Stage::ALL.len());
        Ok(RunReport {
            inputs,
            resumed: first - range.start,
            rows,
            failures,
            settled: settled - range.start,
            bytes: progress.bytes.load(Relaxed),
            wall,
            stages: stage_reports(totals, |stage| threads_of(stage, config), wall),
            encode_parts,
            queues,
            published,
        })
    }

    fn check(&self) -> Result<(), RunError> {
        let (spec, config) = (self.encoder.spec(), &self.config);
        let wants = |what: &str| Err(RunError::Config(what.to_owned()));
        if config.batch == 0 || config.batch > spec.max_batch {
            return wants(&format!("batch must be 1 to {} for this encoder, not {}", spec.max_batch, config.batch));
        }
        if config.workers > 0 && config.readers == 0 {
            return wants("at least one reader thread is needed");
        }
        if config.geometry.output() != spec.input {
            let output = config.geometry.output();
            return wants(&format!("preprocessing gives {output} but the encoder takes {}", spec.input));
        }
        Ok(())
    }
}

fn check_counts(inputs: u64, rows: u64, failures: u64) -> Result<(), RunError> {
    if rows + failures == inputs {
        return Ok(());
    }
    let counts = format!("{inputs} inputs, but {rows} vectors and {failures} failures");
    Err(RunError::Accounting(counts))
}

fn threads_of(stage: Stage, config: &Config) -> usize {
    match stage {
        Stage::Read => config.readers.max(1),
        Stage::Decode | Stage::Resize => config.workers.max(1),
        _ => 1,
    }
}

/// The source's items, each with the batch that it belongs to. Batch boundaries are multiples of the batch size
/// counted from item 0, so a resumed run forms the same batches.
struct Items<'a> {
    source: &'a mut (dyn Source + 'static),
    next: u64,
    end: u64,
    batch: u64,
    number: u64,
    open: Option<Arc<OpenBatch>>,
}

impl<'a> Items<'a> {
    fn new(source: &'a mut (dyn Source + 'static), range: std::ops::Range<u64>, batch: u64) -> Self {
        Self { source, next: range.start, end: range.end, batch, number: 0, open: None }
    }

    /// The next item and its batch. `pixels` is asked for room when a batch begins; `None` from it ends the items.
    fn next(
        &mut self,
        profiler: &StageProfiler,
        pixels: impl FnOnce() -> Option<Pixels>,
    ) -> Result<Option<(Item, Arc<OpenBatch>)>, RunError> {
        if self.next == self.end {
            return Ok(None);
        }
        let batch = match &self.open {
            Some(batch) if self.next < batch.end => Arc::clone(batch),
            _ => {
                let Some(pixels) = pixels() else { return Ok(None) };
                let end = (self.next / self.batch + 1).saturating_mul(self.batch).min(self.end);
                let batch = Arc::new(OpenBatch::new(self.number, self.next, end, pixels));
                self.number += 1;
                self.open = Some(Arc::clone(&batch));
                batch
            }
        };
        let item = timed(profiler, Stage::List, || self.source.next_item())?;
        let index = item.as_ref().map(|item| item.index);
        if index != Some(self.next) {
            let problem = format!("the listing gave item {index:?} where item {} was due", self.next);
            return Err(RunError::Accounting(problem));
        }
        self.next += 1;
        Ok(item.map(|item| (item, batch)))
    }

    fn open_fetch(&self) -> Result<Box<dyn Fetch>, RunError> {
        Ok(self.source.open_fetch()?)
    }
}

/// What every stage of a run sees.
struct Run<'a> {
    config: &'a Config,
    open: &'a dyn OpenPreparer,
    profiler: &'a StageProfiler,
    progress: &'a Progress,
    cancel: &'a Cancel,
}

impl Run<'_> {
    fn new_pixels(&self) -> Pixels {
        Pixels::new(self.config.batch, self.config.geometry.output())
    }

    /// Every stage in turn on this thread.
    fn sequential(
        &self,
        mut items: Items<'_>,
        encoder: &mut dyn Encoder,
        writer: &mut Writer<'_>,
    ) -> Result<(), RunError> {
        let end = items.end;
        let mut fetch = items.open_fetch()?;
        let mut preparer = Preparer::new(self.config, self.open, self.profiler)?;
        let (mut bytes, mut encoded) = (Vec::new(), Encoded::default());
        let mut spare = Some(self.new_pixels());
        while !self.cancel.is_cancelled() {
            let Some((item, batch)) = items.next(self.profiler, || spare.take())? else { break };
            let (outcome, image) = match stages::read(fetch.as_mut(), &item, &mut bytes, self.profiler, self.progress) {
                Ok(()) => preparer.prepare(&item, &bytes)?,
                Err(failure) => (Outcome::Failed(failure), [].as_slice()),
            };
            if let Some(mut full) = timed(self.profiler, Stage::Batch, || batch.settle(item.index, outcome, image)) {
                stages::encode(encoder, self.config, full.end, &mut full.pixels, &mut encoded, self.profiler)?;
                writer.write(&encoded, full.end == end)?;
                spare = Some(full.pixels);
            }
        }
        Ok(())
    }

    /// Readers, workers and the encoder on threads of their own, the writer on this one.
    fn threaded(
        &self,
        items: Items<'_>,
        encoder: &mut dyn Encoder,
        writer: &mut Writer<'_>,
    ) -> Result<Vec<QueueStats>, RunError> {
        let end = items.end;
        let flow = Flow::new(self, items);
        thread::scope(|scope| {
            for n in 0..self.config.readers {
                flow.spawn(scope, Stage::Read, &format!("read-{n}"), |flow| flow.read())?;
            }
            for n in 0..self.config.workers {
                flow.spawn(scope, Stage::Decode, &format!("decode-{n}"), |flow| flow.prepare())?;
            }
            flow.spawn(scope, Stage::Encode, "encode", |flow| flow.encode(encoder))?;
            flow.guard(Stage::Write, || flow.write(writer, end));
            Ok::<(), RunError>(())
        })?;
        match flow.take_fault() {
            Some(fault) => Err(fault),
            None => Ok(flow.stats()),
        }
    }
}

/// An item whose bytes are read, or could not be.
struct ReadItem {
    item: Item,
    batch: Arc<OpenBatch>,
    bytes: Vec<u8>,
}

/// The queues between the threads, and what ends them.
struct Flow<'a> {
    run: &'a Run<'a>,
    items: Mutex<Items<'a>>,
    read: Queue<ReadItem>,
    full: Reorder<FullBatch>,
    encoded: Queue<Encoded>,
    pixels: Pool<Pixels>,
    results: Pool<Encoded>,
    spare_bytes: Mutex<Vec<Vec<u8>>>,
    readers_left: AtomicUsize,
    workers_left: AtomicUsize,
    fault: Mutex<Option<RunError>>,
}

/// Encoded batches that may wait for the writer.
const WRITE_AHEAD: usize = 4;
/// A read buffer that has grown beyond this is not kept for the next item.
const KEEP_READ_BYTES: usize = 16 << 20;

impl<'a> Flow<'a> {
    fn new(run: &'a Run<'a>, items: Items<'a>) -> Self {
        let config = run.config;
        let (batch, size) = (config.batch, config.geometry.output());
        Self {
            run,
            items: Mutex::new(items),
            read: Queue::new("read → decode", config.read_ahead_items(), config.read_ahead_bytes, config.trace.clone()),
            full: Reorder::new("batch → encode", config.batches_in_flight(), config.trace.clone()),
            encoded: Queue::new("encode → write", WRITE_AHEAD, u64::MAX, config.trace.clone()),
            pixels: Pool::new(config.batches_in_flight(), move || Pixels::new(batch, size)),
            results: Pool::new(WRITE_AHEAD + 2, Encoded::default),
            spare_bytes: Mutex::new(Vec::new()),
            readers_left: AtomicUsize::new(config.readers),
            workers_left: AtomicUsize::new(config.workers),
            fault: Mutex::new(None),
        }
    }

    fn spawn<'scope, 'env>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, 'env>,
        stage: Stage,
        name: &str,
        body: impl FnOnce(&Self) -> Result<(), RunError> + Send + 'scope,
    ) -> Result<(), RunError> {
        let thread = thread::Builder::new().name(name.to_owned());
        let spawned = thread.spawn_scoped(scope, move || self.guard(stage, || body(self)));
        spawned.map(|_| ()).map_err(|error| {
            self.stop();
            RunError::Config(format!("cannot start thread {name}: {error}"))
        })
    }

    /// Runs a stage; its error or panic becomes the run's fault and stops every other stage.
    fn guard(&self, stage: Stage, body: impl FnOnce() -> Result<(), RunError>) {
        let fault = match catch_unwind(AssertUnwindSafe(body)) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(panic) => RunError::Panicked { stage, message: stages::panic_message(panic.as_ref()) },
        };
        lock(&self.fault).get_or_insert(fault);
        self.stop();
    }

    fn take_fault(&self) -> Option<RunError> {
        lock(&self.fault).take()
    }

    fn stop(&self) {
        self.pixels.close();
        self.results.close();
        self.read.abort();
        self.full.abort();
        self.encoded.close();
    }

    /// A reader thread: items in turn, their bytes, to whichever worker is free.
    fn read(&self) -> Result<(), RunError> {
        let mut fetch = lock(&self.items).open_fetch()?;
        while !self.run.cancel.is_cancelled() {
            let next = lock(&self.items).next(self.run.profiler, || self.pixels.take())?;
            let Some((item, batch)) = next else { break };
            let mut bytes = lock(&self.spare_bytes).pop().unwrap_or_default();
            match stages::read(fetch.as_mut(), &item, &mut bytes, self.run.profiler, self.run.progress) {
                Ok(()) => {
                    let weight = bytes.len() as u64;
                    if self.read.push(ReadItem { item, batch, bytes }, weight).is_err() {
                        break;
                    }
                }
                Err(failure) => self.settle(&batch, failure.index, Outcome::Failed(failure), &[]),
            }
        }
        if self.readers_left.fetch_sub(1, SeqCst) == 1 {
            self.read.close();
        }
        Ok(())
    }

    /// A worker thread: bytes to pixels in a batch.
    fn prepare(&self) -> Result<(), RunError> {
        let mut preparer = Preparer::new(self.run.config, self.run.open, self.run.profiler)?;
        while let Some(ReadItem { item, batch, bytes }) = self.read.pop() {
            let (outcome, image) = preparer.prepare(&item, &bytes)?;
            self.settle(&batch, item.index, outcome, image);
            if bytes.capacity() <= KEEP_READ_BYTES {
                lock(&self.spare_bytes).push(bytes);
            }
        }
        if self.workers_left.fetch_sub(1, SeqCst) == 1 {
            self.full.close();
        }
        Ok(())
    }

    fn settle(&self, batch: &OpenBatch, index: u64, outcome: Outcome, image: &[u8]) {
        let full = timed(self.run.profiler, Stage::Batch, || batch.settle(index, outcome, image));
        if let Some(full) = full {
            self.full.push(batch.number, full);
        }
    }

    /// The encoder thread: batches in order. When cancelled it finishes the batch in hand.
    fn encode(&self, encoder: &mut dyn Encoder) -> Result<(), RunError> {
        while let Some(mut full) = self.full.pop() {
            let Some(mut encoded) = self.results.take() else { break };
            let (config, profiler) = (self.run.config, self.run.profiler);
            stages::encode(encoder, config, full.end, &mut full.pixels, &mut encoded, profiler)?;
            self.pixels.give(full.pixels);
            if self.encoded.push(encoded, 0).is_err() || self.run.cancel.is_cancelled() {
                break;
            }
        }
        // Whether at the end, cancelled or stopped: nobody upstream may wait for this thread any more.
        self.pixels.close();
        self.read.abort();
        self.full.abort();
        self.encoded.close();
        Ok(())
    }

    fn write(&self, writer: &mut Writer<'_>, end: u64) -> Result<(), RunError> {
        while let Some(encoded) = self.encoded.pop() {
            writer.write(&encoded, encoded.end == end)?;
            self.results.give(encoded);
        }
        Ok(())
    }

    fn stats(&self) -> Vec<QueueStats> {
        vec![self.read.stats(), self.full.stats(), self.encoded.stats()]
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
