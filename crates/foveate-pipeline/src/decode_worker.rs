//! The stages from encoded images to full batches. The threaded and the sequential engine call the same code.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use foveate_core::{Size, Stage};
use foveate_preprocess::{Granularity, ItemFault, Preprocessor, PreprocessorOpener, StageClock};
use foveate_profile::StageProfiler;
use foveate_sink::{ContentId, Stamp};
use foveate_source::Item;
use xxhash_rust::xxh3::xxh3_64;

use crate::RunError;
use crate::batch::{FullBatch, ItemInfo, ItemOutcome, OpenBatch, SeenInput};
use crate::recall::{Contents, VectorOrigin};
use crate::stages::{Progress, failure, stage_number, timed};

/// An item with its bytes, or with the reason why it could not be read.
pub(crate) struct ReadItem {
    pub(crate) item: Item,
    pub(crate) batch: Arc<OpenBatch>,
    /// Its bytes, if they were fetched.
    pub(crate) fetched: Vec<u8>,
    /// Its bytes, if the source delivered them.
    pub(crate) delivered: Option<Bytes>,
    /// Its outcome, if it could not be read.
    pub(crate) fault: Option<ItemOutcome>,
    /// Taken before the bytes were read, so that a change in between is noticed later.
    pub(crate) stamp: Stamp,
    /// The identity of its bytes, once a worker has found it.
    pub(crate) content: Option<ContentId>,
}

impl ReadItem {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.delivered.as_deref().unwrap_or(&self.fetched)
    }
}

/// Read buffers that are free for reuse.
#[derive(Default)]
pub(crate) struct SpareBytes(Mutex<Vec<Vec<u8>>>);

/// A read buffer larger than this is not kept for the next item.
const KEEP_READ_BYTES: usize = 16 << 20;

impl SpareBytes {
    pub(crate) fn take(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give(&self, bytes: Vec<u8>) {
        if bytes.capacity() <= KEEP_READ_BYTES {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
        }
    }
}

/// Read items of batches that are not completely read yet, shared by the threads that prepare whole batches.
#[derive(Default)]
pub(crate) struct Gather(Mutex<BTreeMap<u64, Vec<ReadItem>>>);

impl Gather {
    /// Adds an item; returns all items of its batch, in order, if it was the last.
    fn add(&self, read: ReadItem) -> Option<Vec<ReadItem>> {
        let number = read.batch.number;
        let items = read.batch.items();
        let mut batches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gathered = batches.entry(number).or_default();
        gathered.push(read);
        let complete = gathered.len() == items;
        let mut batch = complete.then(|| batches.remove(&number)).flatten()?;
        batch.sort_by_key(|read| read.item.index);
        Some(batch)
    }
}

/// One thread's tools to prepare images.
pub(crate) struct DecodeWorker<'a> {
    preprocessor: Box<dyn Preprocessor>,
    granularity: Granularity,
    contents: Option<&'a Contents>,
    gather: &'a Gather,
    /// Memory of one image, which is copied from there to its slot of the batch.
    image: Vec<u8>,
    /// The preprocessor's latest results.
    prepared: Vec<Result<Size, ItemFault>>,
    profiler: &'a StageProfiler,
    progress: &'a Progress,
    spare: &'a SpareBytes,
}

impl<'a> DecodeWorker<'a> {
    pub(crate) fn new(
        preprocessors: &PreprocessorOpener,
        contents: Option<&'a Contents>,
        gather: &'a Gather,
        profiler: &'a StageProfiler,
        progress: &'a Progress,
        spare: &'a SpareBytes,
    ) -> Result<Self, RunError> {
        Ok(Self {
            preprocessor: preprocessors.open()?,
            granularity: preprocessors.granularity(),
            contents,
            gather,
            image: vec![0; preprocessors.output().bytes()],
            prepared: Vec::new(),
            profiler,
            progress,
            spare,
        })
    }

    /// Settles an item, and returns its batch if that was the last one to be settled.
    pub(crate) fn take(&mut self, mut read: ReadItem) -> Result<Option<FullBatch>, RunError> {
        read.content = read.fault.is_none().then(|| ContentId::of(read.bytes()));
        match self.granularity {
            Granularity::Image => self.prepare_image(read),
            Granularity::Batch => self.gather.add(read).map_or(Ok(None), |reads| self.prepare_batch(reads)),
        }
    }

    fn prepare_image(&mut self, mut read: ReadItem) -> Result<Option<FullBatch>, RunError> {
        let origin = self.origin(&read);
        let Self { preprocessor, image, prepared, profiler, progress, .. } = self;
        if read.fault.is_none() && origin.is_computed() {
            preprocessor.preprocess(&[read.bytes()], image, prepared, &ProfilerClock { profiler, progress })?;
        }
        let outcome = outcome(&mut read, origin, &mut prepared.drain(..))?;
        let full = timed(profiler, Stage::Batch, || read.batch.settle(read.item.index, outcome, image));
        self.spare.give(read.fetched);
        Ok(full)
    }

    /// Returns the origin of the item's vector, of use only if it could be read.
    fn origin(&self, read: &ReadItem) -> VectorOrigin {
        match (self.contents, read.content) {
            (Some(contents), Some(content)) => contents.origin(read.item.index, content),
            _ => VectorOrigin::Computed(None),
        }
    }

    fn prepare_batch(&mut self, mut reads: Vec<ReadItem>) -> Result<Option<FullBatch>, RunError> {
        let origins: Vec<VectorOrigin> = reads.iter().map(|read| self.origin(read)).collect();
        let Self { preprocessor, prepared, profiler, progress, .. } = self;
        let Some(batch) = reads.first().map(|read| Arc::clone(&read.batch)) else { return Ok(None) };
        let Some(mut pixels) = batch.take() else { return Ok(None) };
        pixels.settle_all(|memory| {
            let to_prepare =
                reads.iter().zip(&origins).filter(|(read, origin)| read.fault.is_none() && origin.is_computed());
            let images: Vec<&[u8]> = to_prepare.map(|(read, _)| read.bytes()).collect();
            if !images.is_empty() {
                preprocessor.preprocess(&images, memory, prepared, &ProfilerClock { profiler, progress })?;
            }
            let mut prepared = prepared.drain(..);
            let reads = reads.iter_mut().zip(origins);
            reads.map(|(read, origin)| outcome(read, origin, &mut prepared)).collect::<Result<Vec<_>, RunError>>()
        })?;
        reads.into_iter().for_each(|read| self.spare.give(read.fetched));
        Ok(Some(batch.full(pixels)))
    }
}

/// An item's outcome: its reader's fault, or else the next of the `prepared` results if its vector is computed.
fn outcome(
    read: &mut ReadItem,
    origin: VectorOrigin,
    prepared: &mut dyn Iterator<Item = Result<Size, ItemFault>>,
) -> Result<ItemOutcome, RunError> {
    if let Some(fault) = read.fault.take() {
        return Ok(fault);
    }
    let len = read.bytes().len() as u64;
    let xxh3 = xxh3_64(read.bytes());
    let item = &mut read.item;
    let seen = SeenInput { place: item.place, stamp: read.stamp, xxh3: Some(xxh3), content: read.content };
    match if origin.is_computed() { prepared.next() } else { Some(Ok(Size::default())) } {
        Some(Ok(size)) => {
            let id = item.id.clone();
            let columns = std::mem::take(&mut item.columns);
            Ok(ItemOutcome::Ready(ItemInfo { index: item.index, id, columns, size, xxh3, seen, origin }))
        }
        Some(Err(ItemFault { stage, reason })) => {
            let failure = failure(item, stage, &reason, Some(len));
            if let VectorOrigin::Computed(Some(lead)) = origin {
                lead.fail(&failure);
            }
            Ok(ItemOutcome::Failed(failure, seen))
        }
        None => Err(RunError::Accounting(format!("the preprocessor said nothing about {}", item.id))),
    }
}

/// Lets a preprocessor record its stages in the run's profile.
struct ProfilerClock<'a> {
    profiler: &'a StageProfiler,
    progress: &'a Progress,
}

impl StageClock for ProfilerClock<'_> {
    fn time(&self, stage: Stage, work: &mut dyn FnMut()) {
        timed(self.profiler, stage, work);
    }

    fn span(&self, stage: Stage, start: Instant, time: Duration) {
        self.profiler.record_from(stage_number(stage), start, time);
    }

    fn record(&self, stage: Stage, time: Duration) {
        self.profiler.record(stage_number(stage), time);
    }

    fn clipped(&self) {
        self.progress.clipped.fetch_add(1, Relaxed);
    }
}
