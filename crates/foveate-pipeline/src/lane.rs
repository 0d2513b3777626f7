//! One encoder and the batches that it has in hand: one where it encodes while its caller waits, several where its
//! device works beside the host.

use std::collections::VecDeque;
use std::time::Instant;

use foveate_core::{PixelBatch, Stage};
use foveate_encode::{Batch, EncodeError, EncodeSpans, Encoder};
use foveate_profile::StageProfiler;

use crate::batch::{Encoded, FullBatch, Pixels};
use crate::stages::{ENCODE_PARTS, timed};
use crate::{Config, RunError};

pub(crate) struct Lane<'a> {
    encoder: &'a mut dyn Encoder,
    config: &'a Config,
    profiler: &'a StageProfiler,
    /// Most batches in hand at once.
    depth: usize,
    flights: VecDeque<Flight>,
}

/// A batch in hand.
struct Flight {
    number: u64,
    pixels: Pixels,
    encoded: Encoded,
    /// Whether the device has it, so that it must be collected.
    submitted: bool,
}

/// A batch that is done with.
pub(crate) struct Landed {
    pub(crate) number: u64,
    /// To be filled again.
    pub(crate) pixels: Pixels,
    pub(crate) encoded: Encoded,
}

impl<'a> Lane<'a> {
    pub(crate) fn new(encoder: &'a mut dyn Encoder, config: &'a Config, profiler: &'a StageProfiler) -> Self {
        let depth = depth(encoder);
        Self { encoder, config, profiler, depth, flights: VecDeque::with_capacity(depth) }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.flights.len() < self.depth
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    /// Begins with a batch, whose rows and failures go to `encoded`.
    pub(crate) fn enter(&mut self, full: FullBatch, mut encoded: Encoded) -> Result<(), RunError> {
        let FullBatch { number, end, mut pixels } = full;
        encoded.clear();
        encoded.end = end;
        let images = timed(self.profiler, Stage::Batch, || pixels.compact(&mut encoded));
        // Where every item of a batch failed, there is nothing to encode.
        let submitted =
            images > 0 && timed(self.profiler, Stage::Encode, || self.submit(images, &mut pixels, &mut encoded))?;
        self.flights.push_back(Flight { number, pixels, encoded, submitted });
        Ok(())
    }

    /// Hands the batch to the device and says so, or encodes it here and now.
    fn submit(&mut self, images: usize, pixels: &mut Pixels, encoded: &mut Encoded) -> Result<bool, RunError> {
        let size = self.encoder.spec().input;
        if let Some(overlap) = self.encoder.overlap() {
            let memory = pixels.lend().unwrap_or_else(|| unreachable!("a full batch has its memory"));
            overlap.submit(Batch { memory, images, size })?;
            return Ok(true);
        }
        let unreadable =
            || EncodeError::Batch("the encoder reads the host's memory, and the batch is not there".into());
        let batch = pixels.host(images).and_then(|samples| PixelBatch::new(samples, size)).ok_or_else(unreadable)?;
        let started = Instant::now();
        let times = self.encoder.encode(batch, &mut encoded.vectors)?;
        self.record(EncodeSpans::in_turn(started, times));
        self.check(encoded)?;
        Ok(false)
    }

    /// Waits for the batch that entered first; `None` when there is none in hand.
    pub(crate) fn leave(&mut self) -> Result<Option<Landed>, RunError> {
        let Some(Flight { number, mut pixels, mut encoded, submitted }) = self.flights.pop_front() else {
            return Ok(None);
        };
        if submitted {
            timed(self.profiler, Stage::Encode, || self.collect(&mut pixels, &mut encoded))?;
        }
        self.config.normalize.apply(encoded.vectors.as_mut_slice(), self.encoder.spec().dim);
        Ok(Some(Landed { number, pixels, encoded }))
    }

    fn collect(&mut self, pixels: &mut Pixels, encoded: &mut Encoded) -> Result<(), RunError> {
        let overlap = self.encoder.overlap().unwrap_or_else(|| unreachable!("it took the batch"));
        let collected = overlap.collect(&mut encoded.vectors)?;
        pixels.give_back(collected.batch.memory);
        self.record(collected.spans);
        self.check(encoded)
    }

    fn check(&self, encoded: &Encoded) -> Result<(), RunError> {
        let dim = self.encoder.spec().dim;
        let got = (encoded.vectors.rows(), encoded.vectors.dim());
        if got == (encoded.len(), dim) {
            return Ok(());
        }
        let (rows, wide) = got;
        let problem = format!("the encoder gave {rows}x{wide} values for {}x{dim}", encoded.len());
        Err(RunError::Accounting(problem))
    }

    /// The parts of an encoding; in a trace, each on a lane of the device's own, because those of neighbouring batches
    /// overlap.
    fn record(&self, spans: EncodeSpans) {
        let device = &self.encoder.spec().device;
        let parts = ENCODE_PARTS.into_iter().zip([spans.copy_in, spans.forward, spans.copy_out]);
        for (at, (part, (start, time))) in parts.enumerate() {
            self.profiler.record(Stage::ALL.len() + at, time);
            if let Some(trace) = self.profiler.trace().filter(|_| !time.is_zero()) {
                trace.span_on(&format!("{device} {part}"), part, start, time);
            }
        }
    }
}

/// Batches that an encoder has in hand at once.
pub(crate) fn depth(encoder: &mut dyn Encoder) -> usize {
    encoder.overlap().map_or(1, |overlap| overlap.depth().max(1))
}
