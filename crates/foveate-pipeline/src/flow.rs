//! A run's stages at work: in turn on one thread, or each on its own threads with queues between them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::lane::{Lane, LaneError};
use foveate_core::{Stage, lock, panic_message};
use foveate_encode::Allocate;
use foveate_preprocess::{Granularity, PreprocessorOpener};
use foveate_profile::StageProfiler;
use foveate_source::{Content, Delivery, Fetch, Source};

use crate::batch::{BatchPixels, Encoded, FullBatch, OpenBatch};
use crate::decode_worker::{DecodeWorker, Gather, ReadItem, SpareBytes};
use crate::forward::{BatchTag, LaneFeed};
use crate::queue::{Pool, Queue, Reorder};
use crate::recall::Contents;
use crate::stages::{self, BatchWriter, Progress, Readout, timed};
use crate::{Cancel, Config, QueueStats, RunError, changed_inputs};

/// The source's items, each with its batch. Batch boundaries are multiples of the batch size counted from item 0, so a
/// resumed run forms the same batches.
pub(crate) struct Items<'a> {
    source: &'a mut (dyn Source + 'static),
    /// The index of the next item.
    next: u64,
    /// Looked for before it is due: the last batch must know its end before its last item is passed on.
    ahead: NextItem,
    batch: u64,
    number: u64,
    open: Option<Arc<OpenBatch>>,
    /// The stage that looking for an item belongs to: a source that delivers contents reads meanwhile.
    stage: Stage,
}

/// The source's next item.
#[allow(clippy::large_enum_variant, reason = "a run has one of them")]
enum NextItem {
    /// The source was not asked yet.
    Unknown,
    Item(Delivery),
    End,
}

/// An item with what the source read of it, and its batch.
type Placed = (Delivery, Arc<OpenBatch>);

impl<'a> Items<'a> {
    fn new(source: &'a mut (dyn Source + 'static), first: u64, batch: u64) -> Self {
        Self { source, next: first, ahead: NextItem::Unknown, batch, number: 0, open: None, stage: Stage::List }
    }

    /// Returns the next item and its batch. Each new batch takes its pixels from `pixels`; a `None` from it ends the
    /// items.
    fn next(
        &mut self,
        profiler: &StageProfiler,
        pixels: impl FnOnce() -> Result<Option<BatchPixels>, RunError>,
    ) -> Result<Option<Placed>, RunError> {
        let Some(index) = self.look_ahead(profiler)? else { return self.at_end().map(|()| None) };
        if index != self.next {
            let problem = format!("the listing gave item {index} where item {} was due", self.next);
            return Err(RunError::Accounting(problem));
        }
        let batch = match &self.open {
            Some(batch) if index < batch.end() => Arc::clone(batch),
            _ => {
                let Some(pixels) = pixels()? else { return Ok(None) };
                let end = (index / self.batch + 1).saturating_mul(self.batch);
                let batch = Arc::new(OpenBatch::new(self.number, index, end, pixels));
                self.number += 1;
                self.open = Some(Arc::clone(&batch));
                batch
            }
        };
        // Not before: a run that ends while its batch waits for pixels has not lost it.
        let NextItem::Item(delivery) = std::mem::replace(&mut self.ahead, NextItem::Unknown) else { return Ok(None) };
        self.next += 1;
        if self.look_ahead(profiler)?.is_none() {
            batch.end_at(self.next);
        }
        Ok(Some((delivery, batch)))
    }

    /// Returns the index of the next item; `None` at the end.
    fn look_ahead(&mut self, profiler: &StageProfiler) -> Result<Option<u64>, RunError> {
        if matches!(self.ahead, NextItem::Unknown) {
            let delivery = timed(profiler, self.stage, || self.source.deliver())?;
            self.ahead = delivery.map_or(NextItem::End, NextItem::Item);
        }
        let NextItem::Item(Delivery { item, content }) = &self.ahead else { return Ok(None) };
        self.stage = if matches!(content, Content::Unread) { Stage::List } else { Stage::Read };
        Ok(Some(item.index))
    }

    /// Checks that a source of a known extent gave all of it.
    fn at_end(&self) -> Result<(), RunError> {
        match self.source.extent().end {
            Some(end) if end != self.next => {
                Err(RunError::Accounting(format!("the listing ended where item {} was due", self.next)))
            }
            _ => Ok(()),
        }
    }

    fn open_fetch(&self) -> Result<Box<dyn Fetch>, RunError> {
        Ok(self.source.open_fetch()?)
    }

    fn passed(&self) -> Passed {
        Passed { queues: Vec::new(), end: matches!(self.ahead, NextItem::End).then_some(self.next) }
    }
}

/// The end of a pass through the stages.
pub(crate) struct Passed {
    pub(crate) queues: Vec<QueueStats>,
    /// One past the source's last item, if its end was reached.
    pub(crate) end: Option<u64>,
}

/// The state that all stages of a run share.
pub(crate) struct RunContext<'a> {
    pub(crate) config: &'a Config,
    pub(crate) preprocessors: &'a PreprocessorOpener,
    pub(crate) contents: Option<&'a Contents>,
    pub(crate) profiler: &'a StageProfiler,
    pub(crate) progress: &'a Progress,
    pub(crate) cancel: &'a Cancel,
    /// The most batches in flight at once, over all encoders.
    pub(crate) depths: usize,
    /// Allocates a batch's memory.
    pub(crate) memory: Allocate,
}

/// The encoders, each with its batches in flight.
pub(crate) type Lanes = [Lane<BatchTag>];

impl RunContext<'_> {
    /// Returns a function that creates batches' pixels.
    fn new_pixels(&self) -> impl Fn() -> Result<BatchPixels, RunError> + Send + Sync + 'static {
        let batch = self.config.batch;
        let format = self.preprocessors.output();
        let memory = self.memory.clone();
        move || {
            let memory = memory(batch * format.bytes()).map_err(LaneError::from)?;
            Ok(BatchPixels::new(batch, format, memory))
        }
    }

    /// The number of batches that exist at once; a worker that prepares whole batches holds one.
    fn batches_in_flight(&self) -> usize {
        let at_workers = match self.preprocessors.granularity() {
            Granularity::Image => 0,
            Granularity::Batch => self.config.workers,
        };
        self.config.batches_in_flight(self.depths) + at_workers
    }

    fn worker<'s>(&'s self, gather: &'s Gather, spare: &'s SpareBytes) -> Result<DecodeWorker<'s>, RunError> {
        DecodeWorker::new(self.preprocessors, self.contents, gather, self.profiler, self.progress, spare)
    }

    /// Takes all items from item `first` on. If the last ones cannot be read, and an earlier one still can, they are
    /// read once more: then they are at fault, and not their storage.
    pub(crate) fn to_the_end(
        &self,
        source: &mut (dyn Source + 'static),
        first: u64,
        lanes: &mut Lanes,
        writer: &mut BatchWriter<'_>,
    ) -> Result<Passed, RunError> {
        let passed = self.pass(Items::new(source, first, self.config.batch as u64), lanes, writer)?;
        let Some((from, failure)) = passed.end.map_or(Ok(None), |end| writer.end(end, false))? else {
            return Ok(passed);
        };
        let count = passed.end.unwrap_or(from.index) - from.index;
        changed_inputs::check_storage(source, count, &failure)?;
        writer.forget_streak();
        source.seek(from.index, from.place)?;
        let again = self.pass(Items::new(source, from.index, self.config.batch as u64), lanes, writer)?;
        again.end.map_or(Ok(None), |end| writer.end(end, true))?;
        Ok(Passed { end: again.end, ..passed })
    }

    fn pass(&self, items: Items<'_>, lanes: &mut Lanes, writer: &mut BatchWriter<'_>) -> Result<Passed, RunError> {
        match self.config.workers {
            0 => self.sequential(items, lanes, writer),
            _ => self.threaded(items, lanes, writer),
        }
    }

    /// Reads an item's bytes, or records why there are none.
    fn read(&self, fetch: &mut dyn Fetch, placed: Placed, spare: &SpareBytes) -> Result<ReadItem, RunError> {
        let (delivery, batch) = placed;
        let Delivery { item, content } = delivery;
        let mut fetched = spare.take();
        let Readout { stamp, delivered, fault } =
            stages::read(fetch, &item, content, &mut fetched, self.profiler, self.progress)?;
        Ok(ReadItem { item, batch, fetched, delivered, fault, stamp, content: None })
    }

    /// Runs every stage in turn on this thread; several encoders take turns.
    fn sequential(
        &self,
        mut items: Items<'_>,
        lanes: &mut Lanes,
        writer: &mut BatchWriter<'_>,
    ) -> Result<Passed, RunError> {
        let gather = Gather::default();
        let spare = SpareBytes::default();
        let mut fetch = items.open_fetch()?;
        let mut worker = self.worker(&gather, &spare)?;
        let mut lanes: Vec<_> = lanes.iter_mut().map(|lane| LaneFeed::new(lane, self.profiler)).collect();
        let new_pixels = self.new_pixels();
        let mut free = Some(new_pixels()?);
        let mut encoded = Encoded::default();
        while !self.cancel.is_cancelled() {
            let Some(placed) = items.next(self.profiler, || Ok(free.take()))? else { break };
            let read = self.read(fetch.as_mut(), placed, &spare)?;
            let Some(full) = worker.take(read)? else { continue };
            let lane = full.number as usize % lanes.len();
            lanes[lane].enter(full, std::mem::take(&mut encoded))?;
            if let Some(mut batch) = lanes[lane].leave()? {
                writer.write(&mut batch.encoded)?;
                free = Some(batch.pixels);
                encoded = batch.encoded;
            }
        }
        Ok(items.passed())
    }

    /// Runs readers, workers and encoders on separate threads, and the writer on this one.
    fn threaded(&self, items: Items<'_>, lanes: &mut Lanes, writer: &mut BatchWriter<'_>) -> Result<Passed, RunError> {
        let flow = StageThreads::new(self, items, lanes.len());
        thread::scope(|scope| {
            for n in 0..self.config.readers {
                flow.spawn(scope, Stage::Read, &format!("read-{n}"), |flow| {
                    flow.read();
                    Ok(())
                })?;
            }
            for n in 0..self.config.workers {
                flow.spawn(scope, Stage::Decode, &format!("decode-{n}"), |flow| flow.prepare())?;
            }
            let alone = lanes.len() == 1;
            for (n, lane) in lanes.iter_mut().enumerate() {
                let name = if alone { "encode".to_owned() } else { format!("encode-{n}") };
                flow.spawn(scope, Stage::Encode, &name, |flow| flow.encode(lane))?;
            }
            flow.guard(Stage::Write, || flow.write(writer));
            Ok::<(), RunError>(())
        })?;
        match flow.take_fault() {
            Some(fault) => Err(fault),
            None => Ok(Passed { queues: flow.stats(), ..lock(&flow.items).passed() }),
        }
    }
}

/// The queues between the threads, and the state that ends a run.
struct StageThreads<'a> {
    run: &'a RunContext<'a>,
    items: Mutex<Items<'a>>,
    read: Queue<ReadItem>,
    gather: Gather,
    full: Reorder<FullBatch>,
    encoded: Reorder<Encoded>,
    pixels: Pool<BatchPixels>,
    results: Pool<Encoded>,
    spare: SpareBytes,
    readers_left: AtomicUsize,
    workers_left: AtomicUsize,
    encoders_left: AtomicUsize,
    fault: Mutex<Option<RunError>>,
}

/// Encoded batches that may be queued for the writer.
const WRITE_AHEAD: usize = 4;

impl<'a> StageThreads<'a> {
    fn new(run: &'a RunContext<'a>, items: Items<'a>, encoders: usize) -> Self {
        let config = run.config;
        // Those queued for the writer, the writer's own, those at the encoders, and one that each encoder reserves.
        let results = WRITE_AHEAD + 1 + run.depths + encoders;
        Self {
            run,
            items: Mutex::new(items),
            read: Queue::new("read → decode", config.read_ahead_items(), config.read_ahead_bytes, config.trace.clone()),
            gather: Gather::default(),
            full: Reorder::new("batch → encode", config.prefetch, config.trace.clone()),
            encoded: Reorder::new("encode → write", WRITE_AHEAD, config.trace.clone()),
            pixels: Pool::new(run.batches_in_flight(), run.new_pixels()),
            results: Pool::new(results, || Ok(Encoded::default())),
            spare: SpareBytes::default(),
            readers_left: AtomicUsize::new(config.readers),
            workers_left: AtomicUsize::new(config.workers),
            encoders_left: AtomicUsize::new(encoders),
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
        spawned.map(drop).map_err(|source| {
            self.stop();
            RunError::Thread { name: name.to_owned(), source }
        })
    }

    /// Runs a stage; its error or panic becomes the run's fault and stops every other stage.
    fn guard(&self, stage: Stage, body: impl FnOnce() -> Result<(), RunError>) {
        let fault = match catch_unwind(AssertUnwindSafe(body)) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(panic) => RunError::Panicked { stage, message: panic_message(panic.as_ref()) },
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

    /// Runs a reader thread. After a fault of the source, the batches before it are still finished.
    fn read(&self) {
        if let Err(fault) = self.read_items() {
            lock(&self.fault).get_or_insert(fault);
            self.pixels.close();
        }
        if self.readers_left.fetch_sub(1, SeqCst) == 1 {
            self.read.close();
        }
    }

    /// Reads the items in turn, for any free worker.
    fn read_items(&self) -> Result<(), RunError> {
        let mut fetch = lock(&self.items).open_fetch()?;
        while !self.run.cancel.is_cancelled() && lock(&self.fault).is_none() {
            let next = lock(&self.items).next(self.run.profiler, || Ok(self.pixels.take()?.0))?;
            let Some(placed) = next else { break };
            let read = self.run.read(fetch.as_mut(), placed, &self.spare)?;
            let weight = read.bytes().len() as u64;
            if self.read.push(read, weight).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Runs a worker thread: turns bytes into pixels of a batch.
    fn prepare(&self) -> Result<(), RunError> {
        let mut worker = self.run.worker(&self.gather, &self.spare)?;
        while let Some(read) = self.read.pop() {
            if let Some(full) = worker.take(read)? {
                self.full.push(full.number, full);
            }
        }
        if self.workers_left.fetch_sub(1, SeqCst) == 1 {
            self.full.close();
        }
        Ok(())
    }

    /// Runs an encoder's thread: it takes whichever batch is next. When cancelled, it finishes its batches in flight.
    fn encode(&self, lane: &mut Lane<BatchTag>) -> Result<(), RunError> {
        let mut forward = LaneFeed::new(lane, self.run.profiler);
        let mut room = None;
        loop {
            match self.next_batch(&forward, &mut room)? {
                Some((full, encoded)) => forward.enter(full, encoded)?,
                None => match forward.leave()? {
                    Some(batch) => self.land(batch),
                    None => break,
                },
            }
        }
        // At the end, cancelled or stopped: producers must no longer wait for this thread.
        self.pixels.close();
        self.read.abort();
        self.full.abort();
        if self.encoders_left.fetch_sub(1, SeqCst) == 1 {
            self.encoded.close();
        }
        Ok(())
    }

    /// Returns the batch that the next forward takes, and room for its result; `None` if collecting comes first. Waits
    /// only if no batch is in flight. Room is reserved first, so that the batch next in order always has some.
    fn next_batch(
        &self,
        forward: &LaneFeed<'_>,
        room: &mut Option<Encoded>,
    ) -> Result<Option<(FullBatch, Encoded)>, RunError> {
        if !forward.has_room() || self.run.cancel.is_cancelled() {
            return Ok(None);
        }
        if room.is_none() {
            *room = if forward.is_empty() { self.wait_for_room()? } else { self.results.try_take()? };
        }
        if room.is_none() {
            return Ok(None);
        }
        let full = if forward.is_empty() { self.full.pop() } else { self.full.try_pop() };
        // Without a batch, the room is kept for the next one.
        Ok(full.and_then(|full| Some((full, room.take()?))))
    }

    fn wait_for_room(&self) -> Result<Option<Encoded>, RunError> {
        let (room, waited) = self.results.take()?;
        self.encoded.producer_waited(waited);
        Ok(room)
    }

    fn land(&self, batch: BatchTag) {
        self.pixels.give(batch.pixels);
        self.encoded.push(batch.number, batch.encoded);
    }

    fn write(&self, writer: &mut BatchWriter<'_>) -> Result<(), RunError> {
        while let Some(mut encoded) = self.encoded.pop() {
            writer.write(&mut encoded)?;
            self.results.give(encoded);
        }
        Ok(())
    }

    fn stats(&self) -> Vec<QueueStats> {
        vec![self.read.stats(), self.full.stats(), self.encoded.stats()]
    }
}
