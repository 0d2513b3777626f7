//! The work on encoded images, up to full batches: image by image where decoding is the CPU's, batch by batch where it
//! is a device's. The threaded and the sequential engine call the same code.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foveate_core::{Size, Stage};
use foveate_preprocess::{CpuPreprocessor, ItemFault, Preprocessor, StageClock};
use foveate_profile::StageProfiler;
use foveate_sink::Failure;
use foveate_source::Item;
use xxhash_rust::xxh3::xxh3_64;

use crate::RunError;
use crate::batch::{FullBatch, ItemInfo, OpenBatch, Outcome};
use crate::stages::{failure, stage_number, timed};

/// An item whose bytes are read, or could not be.
pub(crate) struct ReadItem {
    pub(crate) item: Item,
    pub(crate) batch: Arc<OpenBatch>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) failure: Option<Failure>,
}

/// Read buffers that wait to be used again.
#[derive(Default)]
pub(crate) struct SpareBytes(Mutex<Vec<Vec<u8>>>);

/// A read buffer that has grown beyond this is not kept for the next item.
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

/// One thread's means of preparing images.
pub(crate) enum Work<'a> {
    /// One image after the other, into this memory of one image.
    Each(Box<CpuPreprocessor>, Vec<u8>),
    /// All of a batch at once, once it is gathered.
    Batches(Box<dyn Preprocessor>, &'a Gather),
}

/// Read items of batches that are not read to their end yet, shared by the threads that prepare whole batches.
#[derive(Default)]
pub(crate) struct Gather(Mutex<BTreeMap<u64, Vec<ReadItem>>>);

impl Gather {
    /// Every item of the batch, in order, when `read` was the last of them.
    fn add(&self, read: ReadItem) -> Option<Vec<ReadItem>> {
        let (number, items) = (read.batch.number, read.batch.items());
        let mut batches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gathered = batches.entry(number).or_default();
        gathered.push(read);
        let complete = gathered.len() == items;
        let mut batch = complete.then(|| batches.remove(&number)).flatten()?;
        batch.sort_by_key(|read| read.item.index);
        Some(batch)
    }
}

pub(crate) struct Worker<'a> {
    pub(crate) work: Work<'a>,
    /// What the preprocessor said last.
    pub(crate) prepared: Vec<Result<Size, ItemFault>>,
    pub(crate) profiler: &'a StageProfiler,
    pub(crate) spare: &'a SpareBytes,
}

impl Worker<'_> {
    /// Settles an item, and returns its batch when that was the last one to be settled.
    pub(crate) fn take(&mut self, read: ReadItem) -> Result<Option<FullBatch>, RunError> {
        let clock = Clock(self.profiler);
        match &mut self.work {
            Work::Each(cpu, image) => {
                let mut read = read;
                if read.failure.is_none() {
                    cpu.preprocess(&[&read.bytes], image, &mut self.prepared, &clock)?;
                }
                let outcome = outcome(&mut read, &mut self.prepared.drain(..))?;
                let (batch, index) = (read.batch, read.item.index);
                let full = timed(self.profiler, Stage::Batch, || batch.settle(index, outcome, image));
                self.spare.give(read.bytes);
                Ok(full)
            }
            Work::Batches(preprocessor, gather) => match gather.add(read) {
                Some(reads) => prepare_batch(preprocessor.as_mut(), reads, &mut self.prepared, &clock, self.spare),
                None => Ok(None),
            },
        }
    }
}

fn prepare_batch(
    preprocessor: &mut dyn Preprocessor,
    mut reads: Vec<ReadItem>,
    prepared: &mut Vec<Result<Size, ItemFault>>,
    clock: &Clock<'_>,
    spare: &SpareBytes,
) -> Result<Option<FullBatch>, RunError> {
    let Some(batch) = reads.first().map(|read| Arc::clone(&read.batch)) else { return Ok(None) };
    let Some(mut pixels) = batch.take() else { return Ok(None) };
    pixels.settle_all(|memory| {
        let readable = reads.iter().filter(|read| read.failure.is_none());
        let images: Vec<&[u8]> = readable.map(|read| read.bytes.as_slice()).collect();
        if !images.is_empty() {
            preprocessor.preprocess(&images, memory, prepared, clock)?;
        }
        let mut prepared = prepared.drain(..);
        reads.iter_mut().map(|read| outcome(read, &mut prepared)).collect::<Result<Vec<_>, RunError>>()
    })?;
    reads.into_iter().for_each(|read| spare.give(read.bytes));
    Ok(Some(batch.full(pixels)))
}

/// What became of an item: as its reader said, or else the next of what was `prepared`.
fn outcome(
    read: &mut ReadItem,
    prepared: &mut dyn Iterator<Item = Result<Size, ItemFault>>,
) -> Result<Outcome, RunError> {
    if let Some(failure) = read.failure.take() {
        return Ok(Outcome::Failed(failure));
    }
    let (item, bytes) = (&read.item, &read.bytes);
    match prepared.next() {
        Some(Ok(size)) => {
            Ok(Outcome::Ready(ItemInfo { index: item.index, id: item.id.clone(), size, xxh3: xxh3_64(bytes) }))
        }
        Some(Err(ItemFault { stage, reason })) => {
            Ok(Outcome::Failed(failure(item, stage, &reason, Some(bytes.len() as u64))))
        }
        None => Err(RunError::Accounting(format!("the preprocessor said nothing about {}", item.id))),
    }
}

/// Lets a preprocessor time its stages in the run's profile.
struct Clock<'a>(&'a StageProfiler);

impl StageClock for Clock<'_> {
    fn time(&self, stage: Stage, work: &mut dyn FnMut()) {
        timed(self.0, stage, work);
    }

    fn record(&self, stage: Stage, time: Duration) {
        self.0.record(stage_number(stage), time);
    }
}
