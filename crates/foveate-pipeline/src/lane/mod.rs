//! The forward lane of both engines: it feeds an encoder, owns its batches' memory and tracks the batches in flight.
//!
//! A [`Lane`] takes a batch with `submit` and returns it with `collect`, oldest first. If the encoder's device works
//! beside the host, several batches are in flight: one is copied to the device, another is computed, and a third one's
//! vectors are copied back. Otherwise `submit` encodes the batch at once. The caller sees a difference only in `depth`.
//!
//! - **Memory** travels with its batch and comes back with it, so a batch is not refilled while a device reads it.
//!   [`batch_memory`] allocates it: pinned on the host, or on the device if a preprocessor of whole batches fills it.
//! - **Batch sizes.** A device prepares for each batch size: it chooses algorithms and captures a graph, which takes
//!   several milliseconds. A lane on a device therefore submits at most ten sizes (32, 24, 18, 13, 9, 6, 4, 3, 2, 1 for
//!   batches of up to 32), pads to the next larger one, and drops the padding's rows. If the encoder's spec says
//!   `batch_invariant`, padding does not change a bit of the other rows.
//! - **Vectors** are normalized on request. The lane checks their number and width, and reports those that are not
//!   finite.
//! - **Errors.** An error drops all batches in flight and leaves a usable lane.

mod error;
mod memory;
mod normalize;
mod sizes;

use std::collections::VecDeque;
use std::time::Instant;

use foveate_core::{BatchMemory, PixelBatch, VectorBuf};
use foveate_encode::{Allocate, Batch, EncodeError, EncodeSpans, Encoder, EncoderSpec, Place, host_allocator};

use sizes::LaneSizes;

pub use error::LaneError;
pub use memory::batch_memory;
pub use normalize::Normalize;

/// Feeds an encoder and tracks its batches in flight: one if the encoder blocks its caller, several if its device works
/// while the host does ([`Overlap`](foveate_encode::Overlap)). Each batch carries a `T` of the caller's.
pub struct Lane<T> {
    encoder: Box<dyn Encoder>,
    normalize: Normalize,
    depth: usize,
    /// `None` if a batch's cost depends only on the number of its images.
    sizes: Option<LaneSizes>,
    /// Oldest first.
    flights: VecDeque<LaneFlight<T>>,
}

/// A batch in flight.
struct LaneFlight<T> {
    tag: T,
    images: usize,
    vectors: VectorBuf,
    state: FlightState,
}

enum FlightState {
    /// On the device, padded with images to one of the lane's sizes.
    UnderWay {
        padded: usize,
    },
    Encoded {
        memory: Box<dyn BatchMemory>,
        spans: Option<EncodeSpans>,
    },
}

/// A finished batch.
pub struct Landed<T> {
    /// The tag it was submitted with.
    pub tag: T,
    /// The batch's memory, free for reuse.
    pub memory: Box<dyn BatchMemory>,
    /// One row per image, normalized, `[images, dim]`.
    pub vectors: VectorBuf,
    /// Indices of the rows that are not valid vectors, ascending: a component is infinite or not a number.
    pub not_finite: Vec<usize>,
    /// The times at which the encoder did each part; `None` for a batch without images.
    pub spans: Option<EncodeSpans>,
}

impl<T> Lane<T> {
    /// Creates a lane with no batch in flight.
    pub fn new(mut encoder: Box<dyn Encoder>, normalize: Normalize) -> Self {
        let depth = encoder.overlap().map(|overlap| overlap.depth().max(1));
        let sizes = depth.map(|_| LaneSizes::new(encoder.spec().max_batch));
        let depth = depth.unwrap_or(1);
        Self { encoder, normalize, depth, sizes, flights: VecDeque::with_capacity(depth) }
    }

    /// The encoder's spec.
    pub fn spec(&self) -> &EncoderSpec {
        self.encoder.spec()
    }

    /// The most batches that may be in flight at once.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns true if another batch may be submitted.
    pub fn has_room(&self) -> bool {
        self.flights.len() < self.depth
    }

    /// Returns true if no batch is in flight.
    pub fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    pub(crate) fn allocator(&mut self, place: Place) -> Allocate {
        self.encoder.overlap().map_or_else(host_allocator, |overlap| overlap.allocator(place))
    }

    /// Submits the first `images` images of `memory`, which lie one after another, `[images, h, w, 3]`; there may be
    /// none. Their rows will be in `vectors`, whose previous content does not matter. An encoder that does not overlap
    /// has finished when this returns.
    ///
    /// # Errors
    /// [`LaneError`]; no batch is in flight afterwards, see [`Self::abandon`].
    pub fn submit(
        &mut self,
        memory: Box<dyn BatchMemory>,
        images: usize,
        mut vectors: VectorBuf,
        tag: T,
    ) -> Result<(), LaneError> {
        let begun = self.begin(memory, images, &mut vectors);
        let state = begun.inspect_err(|_| self.abandon())?;
        self.flights.push_back(LaneFlight { tag, images, vectors, state });
        Ok(())
    }

    fn begin(
        &mut self,
        memory: Box<dyn BatchMemory>,
        images: usize,
        vectors: &mut VectorBuf,
    ) -> Result<FlightState, EncodeError> {
        vectors.reset(0, self.spec().dim);
        if images == 0 {
            return Ok(FlightState::Encoded { memory, spans: None });
        }
        let format = self.spec().format();
        let size = format.size;
        let padded = self.padded(images, memory.bytes());
        if let Some(overlap) = self.encoder.overlap() {
            overlap.submit(Batch { memory, images: padded, size })?;
            return Ok(FlightState::UnderWay { padded });
        }
        let bytes = images * format.bytes();
        let batch = memory.host().and_then(|host| PixelBatch::new(host.get(..bytes)?, format)).ok_or_else(|| {
            EncodeError::Batch(format!("{images} images of {size} are not in memory that the host can read"))
        })?;
        let started = Instant::now();
        let times = self.encoder.encode(batch, vectors)?;
        Ok(FlightState::Encoded { memory, spans: Some(EncodeSpans::in_turn(started, times)) })
    }

    /// Returns the size that a batch of `images` is submitted with, given memory of `bytes`. The memory behind the
    /// images is encoded too, and its rows are dropped.
    fn padded(&self, images: usize, bytes: usize) -> usize {
        let room = bytes / self.spec().format().bytes().max(1);
        self.sizes.as_ref().map_or(images, |sizes| sizes.padded(images).min(room).max(images))
    }

    /// Waits for the oldest batch in flight; `None` if there is none.
    ///
    /// # Errors
    /// [`LaneError`]; no batch is in flight afterwards, see [`Self::abandon`].
    pub fn collect(&mut self) -> Result<Option<Landed<T>>, LaneError> {
        let landed = self.flights.pop_front().map(|flight| self.land(flight)).transpose();
        landed.inspect_err(|_| self.abandon())
    }

    fn land(&mut self, flight: LaneFlight<T>) -> Result<Landed<T>, LaneError> {
        let LaneFlight { tag, images, mut vectors, state } = flight;
        let (memory, spans, given) = match state {
            FlightState::Encoded { memory, spans } => (memory, spans, images),
            FlightState::UnderWay { padded } => {
                let overlap = self.encoder.overlap().unwrap_or_else(|| unreachable!("it took the batch"));
                let collected = overlap.collect(&mut vectors)?;
                (collected.batch.memory, Some(collected.spans), padded)
            }
        };
        let rows = vectors.rows();
        let dim = vectors.dim();
        if rows != given || dim != self.spec().dim {
            return Err(LaneError::Shape { rows, dim, images: given });
        }
        vectors.truncate(images);
        let not_finite = (0..images).filter(|&row| !vectors.row(row).iter().all(|value| value.is_finite())).collect();
        self.normalize.apply(vectors.as_mut_slice(), dim);
        Ok(Landed { tag, memory, vectors, not_finite, spans })
    }

    /// Drops the batches in flight and their tags, so that the lane can be used again. Every error does this by itself;
    /// a caller does it after a panic.
    pub fn abandon(&mut self) {
        let flights = self.flights.drain(..);
        let under_way = flights.filter(|flight| matches!(flight.state, FlightState::UnderWay { .. })).count();
        let Some(overlap) = self.encoder.overlap() else { return };
        let mut dropped = VectorBuf::new();
        // After a device error there are none left to collect.
        let _ = (0..under_way).try_for_each(|_| overlap.collect(&mut dropped).map(drop));
    }
}

impl<T> Drop for Lane<T> {
    /// The encoder may have another lane after this one.
    fn drop(&mut self) {
        self.abandon();
    }
}
