//! A run's forward on one lane: batches go in, and come back with their items, times and failures.

use crate::lane::{Landed, Lane};
use foveate_core::Stage;
use foveate_encode::EncodeSpans;
use foveate_profile::StageProfiler;

use crate::RunError;
use crate::batch::{BatchPixels, Encoded, FullBatch};
use crate::stages::{ENCODE_PARTS, stage_number, timed};

pub(crate) struct LaneFeed<'a> {
    lane: &'a mut Lane<BatchTag>,
    profiler: &'a StageProfiler,
}

/// The tag of a batch's memory; it comes back unchanged.
pub(crate) struct BatchTag {
    pub(crate) number: u64,
    /// Free for reuse.
    pub(crate) pixels: BatchPixels,
    pub(crate) encoded: Encoded,
}

impl<'a> LaneFeed<'a> {
    pub(crate) fn new(lane: &'a mut Lane<BatchTag>, profiler: &'a StageProfiler) -> Self {
        Self { lane, profiler }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.lane.has_room()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lane.is_empty()
    }

    /// Submits a batch, whose rows and failures go to `encoded`.
    pub(crate) fn enter(&mut self, full: FullBatch, mut encoded: Encoded) -> Result<(), RunError> {
        let FullBatch { number, end, mut pixels } = full;
        encoded.clear();
        encoded.end = end;
        let images = timed(self.profiler, Stage::Batch, || pixels.compact(&mut encoded));
        let memory = pixels.lend();
        let vectors = std::mem::take(&mut encoded.vectors);
        // If every item of a batch failed, there is nothing to encode: a span would count as a forward.
        let profiler = self.profiler;
        let _span = (images > 0).then(|| profiler.span(stage_number(Stage::Encode)));
        self.lane.submit(memory, images, vectors, BatchTag { number, pixels, encoded })?;
        Ok(())
    }

    /// Waits for the oldest batch in flight; `None` if there is none.
    pub(crate) fn leave(&mut self) -> Result<Option<BatchTag>, RunError> {
        let landed = match self.lane.depth() {
            1 => self.lane.collect()?,
            _ if self.lane.is_empty() => None,
            _ => timed(self.profiler, Stage::Encode, || self.lane.collect())?,
        };
        Ok(landed.map(|landed| self.landed(landed)))
    }

    fn landed(&self, landed: Landed<BatchTag>) -> BatchTag {
        let Landed { tag: mut batch, memory, vectors, not_finite, spans } = landed;
        batch.pixels.give_back(memory);
        batch.encoded.vectors = vectors;
        batch.encoded.not_finite = not_finite;
        if let Some(spans) = spans {
            self.record(spans);
        }
        batch
    }

    /// Records the parts of an encoding. In a trace, each part has its own device track, because neighbouring
    /// batches overlap.
    fn record(&self, spans: EncodeSpans) {
        let device = &self.lane.spec().device;
        let parts = ENCODE_PARTS.into_iter().zip([spans.copy_in, spans.forward, spans.copy_out]);
        for (at, (part, (start, time))) in parts.enumerate() {
            self.profiler.record(Stage::ALL.len() + at, time);
            if let Some(trace) = self.profiler.trace().filter(|_| !time.is_zero()) {
                trace.span_on(&format!("{device} {part}"), part, start, time);
            }
        }
    }
}
