use std::sync::Arc;
use std::time::{Duration, Instant};

use foveate_core::{BatchMemory, Size, VectorBuf};

use crate::error::EncodeError;
use crate::times::EncodeTimes;

/// Most different sizes of batches that an encoder is given over its life, if it overlaps: what it prepares for a size is
/// worth keeping for as many.
pub const BATCH_SIZES: usize = 10;

/// An encoder whose device works while the host goes on: batches are submitted, and collected later, in the order in
/// which they were submitted. While one batch is computed, the next one is on its way to the device and the last one's
/// vectors are on their way back.
///
/// [`Encoder::encode`](crate::Encoder::encode) must not be called while batches are under way.
pub trait Overlap {
    /// Batches that may be under way at once, at least 2.
    fn depth(&mut self) -> usize;

    /// Makes memory for batches that the device reads without a detour: pinned memory of the host, or memory of the
    /// device itself.
    fn allocator(&mut self, place: Place) -> Allocate;

    /// Begins to encode `batch`, and returns without waiting for the device. Memory that did not come from
    /// [`Self::allocator`] works too, where the host can read it; it is copied once more.
    ///
    /// # Errors
    /// [`EncodeError::Batch`] when [`Self::depth`] batches are under way, or the batch does not fit; what the device
    /// says otherwise. The batches under way are lost.
    fn submit(&mut self, batch: Batch) -> Result<(), EncodeError>;

    /// Waits for the oldest batch under way: its rows to `out` as [`Encoder::encode`](crate::Encoder::encode) gives
    /// them, its memory back.
    ///
    /// # Errors
    /// [`EncodeError::Batch`] when none is under way; what the device says otherwise.
    fn collect(&mut self, out: &mut VectorBuf) -> Result<Collected, EncodeError>;
}

/// Where a batch's memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the host, pinned: the workers fill it, the device copies from it by itself.
    Host,
    /// On the device: only code that runs there can fill it.
    Device,
}

/// Makes memory of so many bytes; shared by the threads that fill batches.
pub type Allocate = Arc<dyn Fn(usize) -> Result<Box<dyn BatchMemory>, EncodeError> + Send + Sync>;

/// The usual memory, for encoders that read the host's.
pub fn host_allocator() -> Allocate {
    Arc::new(|bytes| Ok(Box::new(vec![0_u8; bytes])))
}

/// Images that travel together with the memory they lie in.
pub struct Batch {
    /// `[images, height, width, 3]` u8 from the start of it; what follows is not looked at.
    pub memory: Box<dyn BatchMemory>,
    /// How many, at least one.
    pub images: usize,
    /// Of every image.
    pub size: Size,
}

/// A batch that came back.
pub struct Collected {
    /// As it was submitted.
    pub batch: Batch,
    /// What the device did when.
    pub spans: EncodeSpans,
}

/// When a device did the parts of one encoding, by the device's clock, as moments of the host's. Parts of neighbouring
/// batches overlap; those of one batch do not.
#[derive(Clone, Copy, Debug)]
pub struct EncodeSpans {
    /// The batch to the device.
    pub copy_in: (Instant, Duration),
    /// The network.
    pub forward: (Instant, Duration),
    /// The vectors to the host.
    pub copy_out: (Instant, Duration),
}

impl EncodeSpans {
    /// One part after the other since `started`, as an encoder that does not overlap does them.
    pub fn in_turn(started: Instant, times: EncodeTimes) -> Self {
        let forward = started + times.copy_in;
        Self {
            copy_in: (started, times.copy_in),
            forward: (forward, times.forward),
            copy_out: (forward + times.forward, times.copy_out),
        }
    }

    /// How long each part took.
    pub fn times(&self) -> EncodeTimes {
        EncodeTimes { copy_in: self.copy_in.1, forward: self.forward.1, copy_out: self.copy_out.1 }
    }
}
