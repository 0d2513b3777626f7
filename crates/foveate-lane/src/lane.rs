use std::collections::VecDeque;
use std::time::Instant;

use foveate_core::{BatchMemory, PixelBatch, VectorBuf};
use foveate_encode::{Allocate, Batch, EncodeError, EncodeSpans, Encoder, EncoderSpec, Place, host_allocator};

use crate::sizes::Sizes;
use crate::{LaneError, Normalize};

/// An encoder and the batches that it has in hand: one where it encodes while its caller waits, several where its device
/// works beside the host ([`Overlap`](foveate_encode::Overlap)). With each batch travels a `T` of the caller's.
pub struct Lane<T> {
    encoder: Box<dyn Encoder>,
    normalize: Normalize,
    depth: usize,
    /// `None` where a batch of any size costs what its images cost.
    sizes: Option<Sizes>,
    /// Oldest first.
    flights: VecDeque<Flight<T>>,
}

/// A batch in hand.
struct Flight<T> {
    tag: T,
    images: usize,
    vectors: VectorBuf,
    state: State,
}

enum State {
    /// The device has it, with as many images of padding as make it one of the lane's sizes.
    UnderWay {
        padded: usize,
    },
    Encoded {
        memory: Box<dyn BatchMemory>,
        spans: Option<EncodeSpans>,
    },
}

/// A batch that is done with.
pub struct Landed<T> {
    /// What was submitted with it.
    pub tag: T,
    /// To be filled again.
    pub memory: Box<dyn BatchMemory>,
    /// A row for each image, normalized, `[images, dim]`.
    pub vectors: VectorBuf,
    /// The rows, in order, that are no vectors: a component is infinite or not a number.
    pub not_finite: Vec<usize>,
    /// What the encoder did when; `None` for a batch without images.
    pub spans: Option<EncodeSpans>,
}

impl<T> Lane<T> {
    /// A lane with nothing in hand.
    pub fn new(mut encoder: Box<dyn Encoder>, normalize: Normalize) -> Self {
        let depth = encoder.overlap().map(|overlap| overlap.depth().max(1));
        let sizes = depth.map(|_| Sizes::new(encoder.spec().max_batch));
        let depth = depth.unwrap_or(1);
        Self { encoder, normalize, depth, sizes, flights: VecDeque::with_capacity(depth) }
    }

    /// What its encoder takes and gives.
    pub fn spec(&self) -> &EncoderSpec {
        self.encoder.spec()
    }

    /// Most batches in hand at once.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Whether another batch may be submitted.
    pub fn has_room(&self) -> bool {
        self.flights.len() < self.depth
    }

    /// Whether no batch is in hand.
    pub fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    pub(crate) fn allocator(&mut self, place: Place) -> Allocate {
        self.encoder.overlap().map_or_else(host_allocator, |overlap| overlap.allocator(place))
    }

    /// Begins with the first `images` images of `memory`, where they lie side by side, `[images, h, w, 3]`; there may be none.
    /// Their rows will be in `vectors`, whose content does not matter. An encoder that does not overlap is done when this
    /// returns.
    ///
    /// # Errors
    /// [`LaneError`], when nothing is in hand any more: see [`Self::abandon`].
    pub fn submit(
        &mut self,
        memory: Box<dyn BatchMemory>,
        images: usize,
        mut vectors: VectorBuf,
        tag: T,
    ) -> Result<(), LaneError> {
        let begun = self.begin(memory, images, &mut vectors);
        let state = begun.inspect_err(|_| self.abandon())?;
        self.flights.push_back(Flight { tag, images, vectors, state });
        Ok(())
    }

    fn begin(
        &mut self,
        memory: Box<dyn BatchMemory>,
        images: usize,
        vectors: &mut VectorBuf,
    ) -> Result<State, EncodeError> {
        vectors.reset(0, self.spec().dim);
        if images == 0 {
            return Ok(State::Encoded { memory, spans: None });
        }
        let size = self.spec().input;
        let padded = self.padded(images, memory.bytes());
        if let Some(overlap) = self.encoder.overlap() {
            overlap.submit(Batch { memory, images: padded, size })?;
            return Ok(State::UnderWay { padded });
        }
        let bytes = images * size.rgb_len().unwrap_or(0);
        let batch = memory.host().and_then(|host| PixelBatch::new(host.get(..bytes)?, size)).ok_or_else(|| {
            EncodeError::Batch(format!("{images} images of {size} are not in memory that the host can read"))
        })?;
        let started = Instant::now();
        let times = self.encoder.encode(batch, vectors)?;
        Ok(State::Encoded { memory, spans: Some(EncodeSpans::in_turn(started, times)) })
    }

    /// How many images a batch of `images` in so many bytes is submitted as. What the memory has behind them is encoded,
    /// too, and its rows are left out.
    fn padded(&self, images: usize, bytes: usize) -> usize {
        let room = bytes / self.spec().input.rgb_len().unwrap_or(0).max(1);
        self.sizes.as_ref().map_or(images, |sizes| sizes.padded(images).min(room).max(images))
    }

    /// Waits for the batch that was submitted first; `None` when there is none in hand.
    ///
    /// # Errors
    /// [`LaneError`], when nothing is in hand any more: see [`Self::abandon`].
    pub fn collect(&mut self) -> Result<Option<Landed<T>>, LaneError> {
        let landed = self.flights.pop_front().map(|flight| self.land(flight)).transpose();
        landed.inspect_err(|_| self.abandon())
    }

    fn land(&mut self, flight: Flight<T>) -> Result<Landed<T>, LaneError> {
        let Flight { tag, images, mut vectors, state } = flight;
        let (memory, spans, given) = match state {
            State::Encoded { memory, spans } => (memory, spans, images),
            State::UnderWay { padded } => {
                let overlap = self.encoder.overlap().unwrap_or_else(|| unreachable!("it took the batch"));
                let collected = overlap.collect(&mut vectors)?;
                (collected.batch.memory, Some(collected.spans), padded)
            }
        };
        let (rows, dim) = (vectors.rows(), vectors.dim());
        if (rows, dim) != (given, self.spec().dim) {
            return Err(LaneError::Shape { rows, dim, images: given });
        }
        vectors.truncate(images);
        let is_finite = |row: &usize| vectors.row(*row).iter().all(|value| value.is_finite());
        let not_finite = (0..images).filter(|row| !is_finite(row)).collect();
        self.normalize.apply(vectors.as_mut_slice(), dim);
        Ok(Landed { tag, memory, vectors, not_finite, spans })
    }

    /// Gives up the batches in hand, with what travels with them, so that the lane can be used again. Every error does that
    /// by itself; a caller does it after a panic.
    pub fn abandon(&mut self) {
        let is_under_way = |flight: &Flight<T>| matches!(flight.state, State::UnderWay { .. });
        let under_way = self.flights.drain(..).filter(is_under_way).count();
        let Some(overlap) = self.encoder.overlap() else { return };
        let mut dropped = VectorBuf::new();
        // A device that failed has none any more.
        let _ = (0..under_way).try_for_each(|_| overlap.collect(&mut dropped).map(drop));
    }
}
