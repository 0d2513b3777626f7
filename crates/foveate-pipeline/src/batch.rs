//! Batches in progress: filled slot by slot by the workers in any order, compacted, encoded, written in order.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use foveate_core::{BatchMemory, InputFormat, Size, Stage, VectorBuf};
use foveate_sink::{ContentId, Failure, InputRecord, Rows, Stamp};

use crate::RunError;
use crate::recall::{Contents, KnownVector, Recalled, VectorOrigin};

/// An item's outcome on its way to the encoder.
pub(crate) enum ItemOutcome {
    /// Its pixels are in its slot of the batch, if its vector is computed.
    Ready(ItemInfo),
    /// It has no pixels, for this reason.
    Failed(Failure, SeenInput),
    /// It could not be read, perhaps because its disk is gone.
    Unreadable(Failure, SeenInput),
}

/// An input as reading it showed, for the record of the inputs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeenInput {
    /// The item's place in the source.
    pub(crate) place: u64,
    pub(crate) stamp: Stamp,
    /// Checksum of its bytes, if they were read.
    pub(crate) xxh3: Option<u64>,
    pub(crate) content: Option<ContentId>,
}

/// The metadata stored with an image's vector.
pub(crate) struct ItemInfo {
    pub(crate) index: u64,
    pub(crate) id: String,
    pub(crate) columns: Box<[Option<String>]>,
    /// Size after orientation; of no account unless the vector is computed.
    pub(crate) size: Size,
    pub(crate) xxh3: u64,
    pub(crate) seen: SeenInput,
    pub(crate) origin: VectorOrigin,
}

/// A batch's pixels, `[slots, h, w, 3]`, and the outcome of each slot's item. Reused from batch to batch.
pub(crate) struct BatchPixels {
    /// `None` while the encoder has it.
    memory: Option<Box<dyn BatchMemory>>,
    outcomes: Vec<Option<ItemOutcome>>,
    image_len: usize,
    settled: usize,
    /// True if the images are already adjacent, rather than each in its item's slot.
    dense: bool,
}

impl BatchPixels {
    /// Creates `slots` slots for images of this format in `memory`.
    pub(crate) fn new(slots: usize, format: InputFormat, memory: Box<dyn BatchMemory>) -> Self {
        let outcomes = std::iter::repeat_with(|| None).take(slots).collect();
        Self { memory: Some(memory), outcomes, image_len: format.bytes(), settled: 0, dense: false }
    }

    fn settle(&mut self, slot: usize, outcome: ItemOutcome, image: &[u8]) {
        if matches!(&outcome, ItemOutcome::Ready(info) if info.origin.is_computed()) {
            let at = slot * self.image_len;
            self.host_mut()[at..][..image.len()].copy_from_slice(image);
        }
        debug_assert!(self.outcomes[slot].is_none(), "an item has one outcome");
        self.outcomes[slot] = Some(outcome);
        self.settled += 1;
    }

    /// Settles every item at once; `fill` writes the successful images one after another into the memory.
    pub(crate) fn settle_all<E>(
        &mut self,
        fill: impl FnOnce(&mut dyn BatchMemory) -> Result<Vec<ItemOutcome>, E>,
    ) -> Result<(), E> {
        let memory = self.memory.as_deref_mut().unwrap_or_else(|| unreachable!("the encoder gave it back"));
        let outcomes = fill(memory)?;
        self.settled = outcomes.len();
        self.outcomes.iter_mut().zip(outcomes).for_each(|(slot, outcome)| *slot = Some(outcome));
        self.dense = true;
        Ok(())
    }

    /// Moves the images together over the slots of items without pixels, moves the outcomes to `encoded`, and returns
    /// the number of images. The slots are free afterwards.
    pub(crate) fn compact(&mut self, encoded: &mut Encoded) -> usize {
        let mut kept = 0;
        for slot in 0..self.outcomes.len() {
            match self.outcomes[slot].take() {
                Some(ItemOutcome::Ready(info)) => {
                    if info.origin.is_computed() {
                        if kept != slot && !self.dense {
                            let len = self.image_len;
                            self.host_mut().copy_within(slot * len..(slot + 1) * len, kept * len);
                        }
                        kept += 1;
                    }
                    encoded.push(info);
                }
                Some(ItemOutcome::Failed(failure, seen)) => encoded.fail(failure, seen),
                Some(ItemOutcome::Unreadable(failure, seen)) => {
                    encoded.unreadable.push(failure.index);
                    encoded.fail(failure, seen);
                }
                None => {}
            }
        }
        self.settled = 0;
        self.dense = false;
        kept
    }

    fn host_mut(&mut self) -> &mut [u8] {
        let memory = self.memory.as_deref_mut().and_then(BatchMemory::host_mut);
        memory.unwrap_or_else(|| unreachable!("only memory of the host is filled slot by slot"))
    }

    /// Takes the memory out, for the encoder to read.
    pub(crate) fn lend(&mut self) -> Box<dyn BatchMemory> {
        self.memory.take().unwrap_or_else(|| unreachable!("the encoder gave it back"))
    }

    /// Puts the memory back.
    pub(crate) fn give_back(&mut self, memory: Box<dyn BatchMemory>) {
        self.memory = Some(memory);
    }
}

/// A batch that workers are filling. It covers the items `first..end` of the source. An item's index alone decides its
/// slot, so neither the number of workers nor their speed changes which items are encoded together.
pub(crate) struct OpenBatch {
    /// Place of the batch in the run, from 0.
    pub(crate) number: u64,
    pub(crate) first: u64,
    /// One past the last item. Lowered before the source's last item is passed on, if that is not the batch's last.
    end: AtomicU64,
    pixels: Mutex<Option<BatchPixels>>,
}

/// A batch in which every item has an outcome.
pub(crate) struct FullBatch {
    pub(crate) number: u64,
    pub(crate) end: u64,
    pub(crate) pixels: BatchPixels,
}

impl OpenBatch {
    pub(crate) fn new(number: u64, first: u64, end: u64, pixels: BatchPixels) -> Self {
        Self { number, first, end: AtomicU64::new(end), pixels: Mutex::new(Some(pixels)) }
    }

    pub(crate) fn end(&self) -> u64 {
        self.end.load(SeqCst)
    }

    /// Ends the batch early. Must happen before the item below `end` is passed on.
    pub(crate) fn end_at(&self, end: u64) {
        self.end.store(end, SeqCst);
    }

    /// Records the outcome of item `index`, and its pixels if it has any (`image` is ignored otherwise). Returns the
    /// batch if this was its last item.
    pub(crate) fn settle(&self, index: u64, outcome: ItemOutcome, image: &[u8]) -> Option<FullBatch> {
        let mut guard = self.pixels.lock().unwrap_or_else(PoisonError::into_inner);
        let pixels = guard.as_mut()?;
        pixels.settle((index - self.first) as usize, outcome, image);
        let full = pixels.settled as u64 == self.end() - self.first;
        full.then(|| guard.take().map(|pixels| self.full(pixels))).flatten()
    }

    /// The number of items.
    pub(crate) fn items(&self) -> usize {
        (self.end() - self.first) as usize
    }

    /// Takes the pixels, to settle all items at once.
    pub(crate) fn take(&self) -> Option<BatchPixels> {
        self.pixels.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Builds the full batch from `pixels`, in which every item is settled.
    pub(crate) fn full(&self, pixels: BatchPixels) -> FullBatch {
        FullBatch { number: self.number, end: self.end(), pixels }
    }
}

/// The sink's input: one batch's rows and failures. Reused from batch to batch.
#[derive(Default)]
pub(crate) struct Encoded {
    /// Every item below this index has its outcome in this batch or an earlier one.
    pub(crate) end: u64,
    /// The vectors that were computed; those of all rows once they are [complete](Self::complete).
    pub(crate) vectors: VectorBuf,
    /// The computed vectors that are not valid.
    pub(crate) not_finite: Vec<usize>,
    origins: Vec<VectorOrigin>,
    /// Memory of earlier vectors.
    spare: VectorBuf,
    pub(crate) failures: Vec<Failure>,
    /// The failures that concern reading, by index.
    unreadable: Vec<u64>,
    /// Every item of the batch.
    pub(crate) inputs: Vec<InputRecord>,
    index: Vec<u64>,
    id: Vec<String>,
    width: Vec<u32>,
    height: Vec<u32>,
    xxh3: Vec<u64>,
    columns: Vec<Box<[Option<String>]>>,
}

impl Encoded {
    fn push(&mut self, info: ItemInfo) {
        self.record(info.id.clone(), info.seen);
        self.columns.push(info.columns);
        self.origins.push(info.origin);
        self.index.push(info.index);
        self.id.push(info.id);
        self.width.push(info.size.width);
        self.height.push(info.size.height);
        self.xxh3.push(info.xxh3);
    }

    fn fail(&mut self, failure: Failure, seen: SeenInput) {
        self.record(failure.id.clone(), seen);
        self.failures.push(failure);
    }

    fn record(&mut self, id: String, SeenInput { place, stamp, xxh3, content }: SeenInput) {
        self.inputs.push(InputRecord { id, stamp, xxh3, content, place });
    }

    pub(crate) fn clear(&mut self) {
        self.vectors.reset(0, 0);
        self.not_finite.clear();
        self.origins.clear();
        self.failures.clear();
        self.unreadable.clear();
        self.inputs.clear();
        self.columns.clear();
        self.index.clear();
        self.id.clear();
        self.width.clear();
        self.height.clear();
        self.xxh3.clear();
    }

    /// Gives each row its vector, or turns it into a failure. Computed outcomes go to the items that share them, which
    /// are in this batch or a later one. Adds to `recalled` where the vectors came from.
    pub(crate) fn complete(&mut self, contents: Option<&Contents>, recalled: &mut Recalled) -> Result<(), RunError> {
        let computed = std::mem::replace(&mut self.vectors, std::mem::take(&mut self.spare));
        let dim = computed.dim();
        let mut next = 0;
        let mut failed = Vec::new();
        let rows = self.vectors.reset(self.index.len(), dim).chunks_exact_mut(dim.max(1));
        for ((row, origin), vector) in self.origins.drain(..).enumerate().zip(rows) {
            let (shared, count) = match origin {
                VectorOrigin::Run(shared) => (shared, &mut recalled.run),
                VectorOrigin::Output(shared) => (shared, &mut recalled.output),
                VectorOrigin::Cache(shared) => (shared, &mut recalled.cache),
                VectorOrigin::Computed(lead) => {
                    vector.copy_from_slice(computed.row(next));
                    let is_finite = !self.not_finite.contains(&next);
                    next += 1;
                    if !is_finite {
                        let failure = not_finite(self.index[row], self.id[row].clone());
                        lead.inspect(|lead| lead.fail(&failure));
                        failed.push((row, failure));
                    } else if let (Some(contents), Some(lead)) = (contents, lead) {
                        let size = Size::new(self.width[row], self.height[row]);
                        contents.settle(&lead, KnownVector { size, vector: vector.to_vec() });
                    }
                    continue;
                }
            };
            match shared.get() {
                Some(Ok(known)) => {
                    vector.copy_from_slice(&known.vector);
                    self.width[row] = known.size.width;
                    self.height[row] = known.size.height;
                    *count += 1;
                }
                Some(Err(failure)) => {
                    let id = self.id[row].clone();
                    failed.push((row, Failure { index: self.index[row], id, ..failure.clone() }));
                }
                None => {
                    let problem = format!("{} came before the item that it shares a vector with", self.id[row]);
                    return Err(RunError::Accounting(problem));
                }
            }
        }
        self.spare = computed;
        self.fail_rows(failed);
        Ok(())
    }

    /// Turns rows into failures.
    fn fail_rows(&mut self, failed: Vec<(usize, Failure)>) {
        if failed.is_empty() {
            return;
        }
        let (bad, failures): (Vec<usize>, Vec<Failure>) = failed.into_iter().unzip();
        let bad = bad.as_slice();
        self.failures.extend(failures);
        self.failures.sort_by_key(|failure| failure.index);
        self.vectors.remove(bad);
        remove(&mut self.index, bad);
        remove(&mut self.id, bad);
        remove(&mut self.width, bad);
        remove(&mut self.height, bad);
        remove(&mut self.xxh3, bad);
        remove(&mut self.columns, bad);
    }

    /// The failures, and after them those from the first unreadable item on after which no item was read. Failures of
    /// the listing tell nothing of the storage: they neither begin such a streak nor end one, as that which `continues`
    /// from the batch before.
    pub(crate) fn failures_and_streak(&self, continues: bool) -> (&[Failure], &[Failure]) {
        let mut start = self.failures.len();
        for (index, failure) in (0..self.end).rev().zip(self.failures.iter().rev()) {
            let is_unread = failure.stage == Stage::List || self.unreadable.binary_search(&failure.index).is_ok();
            if index != failure.index || !is_unread {
                break;
            }
            start -= 1;
        }
        let continues = continues && start + self.len() == 0;
        while self.failures.get(start).is_some_and(|failure| !continues && failure.stage == Stage::List) {
            start += 1;
        }
        self.failures.split_at(start)
    }

    /// Number of vectors.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn rows(&self) -> Rows<'_> {
        Rows {
            index: &self.index,
            id: &self.id,
            vectors: self.vectors.as_slice(),
            width: &self.width,
            height: &self.height,
            xxh3: &self.xxh3,
            columns: &self.columns,
        }
    }
}

fn not_finite(index: u64, id: String) -> Failure {
    let reason = "the model gave a vector with a component that is infinite or not a number".to_owned();
    Failure { index, id, stage: Stage::Encode, reason, bytes: None }
}

/// Removes the values at the indices `bad`.
fn remove<T>(values: &mut Vec<T>, bad: &[usize]) {
    let mut places = 0..;
    values.retain(|_| places.next().is_none_or(|place| !bad.contains(&place)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(index: u64) -> ItemOutcome {
        let (columns, seen) = (Box::default(), SeenInput::default());
        let (id, size, origin) = (index.to_string(), Size::square(9), VectorOrigin::Computed(None));
        ItemOutcome::Ready(ItemInfo { index, id, columns, size, xxh3: index, seen, origin })
    }

    fn failed(index: u64) -> ItemOutcome {
        let (id, reason) = (index.to_string(), "x".to_owned());
        ItemOutcome::Failed(Failure { index, id, stage: Stage::Decode, reason, bytes: None }, SeenInput::default())
    }

    #[test]
    fn a_streak_is_what_is_unreadable_at_the_end() {
        let unreadable = |index| match failed(index) {
            ItemOutcome::Failed(failure, seen) => ItemOutcome::Unreadable(failure, seen),
            other => other,
        };
        let streak = |outcomes: Vec<ItemOutcome>| {
            let (end, pixels) = (100 + outcomes.len() as u64, Box::new(vec![0; 3 * outcomes.len()]));
            let batch = OpenBatch::new(0, 100, end, BatchPixels::new(outcomes.len(), Size::new(1, 1).into(), pixels));
            let full =
                (100..).zip(outcomes).filter_map(|(index, outcome)| batch.settle(index, outcome, &[0; 3])).last();
            let mut encoded = Encoded { end, ..Encoded::default() };
            full.unwrap().pixels.compact(&mut encoded);
            [false, true].map(|continues| {
                let (failures, streak) = encoded.failures_and_streak(continues);
                (failures.len(), streak.len())
            })
        };
        let listed = |index| match failed(index) {
            ItemOutcome::Failed(failure, seen) => ItemOutcome::Failed(Failure { stage: Stage::List, ..failure }, seen),
            other => other,
        };
        assert_eq!(streak(vec![unreadable(100), unreadable(101)]), [(0, 2); 2]);
        assert_eq!(streak(vec![unreadable(100), ready(101), unreadable(102)]), [(1, 1); 2]);
        assert_eq!(streak(vec![unreadable(100), failed(101), unreadable(102)]), [(2, 1); 2]);
        assert_eq!(streak(vec![unreadable(100), unreadable(101), ready(102)]), [(2, 0); 2]);
        assert_eq!(streak(vec![unreadable(100), failed(101)]), [(2, 0); 2]);
        assert_eq!(streak(vec![ready(100), listed(101), unreadable(102), listed(103)]), [(1, 2); 2]);
        assert_eq!(streak(vec![listed(100), unreadable(101)]), [(1, 1), (0, 2)]);
        assert_eq!(streak(vec![listed(100), listed(101)]), [(2, 0), (0, 2)]);
    }

    #[test]
    fn failed_items_leave_no_hole_and_shift_no_row() {
        let size = Size::new(1, 1);
        let batch = OpenBatch::new(0, 100, 104, BatchPixels::new(4, size.into(), Box::new(vec![0; 12])));
        assert!(batch.settle(102, ready(102), &[2; 3]).is_none());
        assert!(batch.settle(100, failed(100), &[]).is_none());
        assert!(batch.settle(103, ready(103), &[3; 3]).is_none());
        let mut full = batch.settle(101, failed(101), &[]).unwrap();

        let mut encoded = Encoded::default();
        let images = full.pixels.compact(&mut encoded);
        assert_eq!(full.pixels.lend().host().unwrap()[..3 * images], [2, 2, 2, 3, 3, 3]);
        assert_eq!(encoded.rows().index, [102, 103]);
        assert_eq!(encoded.failures.iter().map(|f| f.index).collect::<Vec<_>>(), [100, 101]);
    }
}
