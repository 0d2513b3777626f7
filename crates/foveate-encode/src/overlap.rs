use std::sync::Arc;
use std::time::{Duration, Instant};

use foveate_core::{BatchMemory, Size, VectorBuf};

use crate::error::EncodeError;
use crate::times::EncodeTimes;

/// The most distinct batch sizes that a caller gives an overlapping encoder over its life. An encoder should cache its
/// preparations for that many sizes.
pub const BATCH_SIZES: usize = 10;

/// An encoder whose device works while the host goes on: batches are submitted, then collected later in the same order.
/// While one batch is computed, the next one is copied to the device and the previous one's vectors are copied back.
///
/// [`Encoder::encode`](crate::Encoder::encode) must not be called while batches are in flight.
pub trait Overlap {
    /// The most batches in flight at once, at least 2.
    fn depth(&mut self) -> usize;

    /// Returns an allocator of batch memory that the device accesses directly: pinned memory of the host, or memory of
    /// the device itself.
    fn allocator(&mut self, place: Place) -> Allocate;

    /// Starts to encode `batch`, and returns without waiting for the device. Memory from elsewhere than
    /// [`Self::allocator`] works too if the host can read it; it costs one more copy.
    ///
    /// # Errors
    /// [`EncodeError::Batch`] if [`Self::depth`] batches are in flight already, or the batch does not fit; the device's
    /// error otherwise. The batches in flight are lost.
    fn submit(&mut self, batch: Batch) -> Result<(), EncodeError>;

    /// Waits for the oldest batch in flight: writes its rows to `out` as [`Encoder::encode`](crate::Encoder::encode)
    /// does, and returns its memory.
    ///
    /// # Errors
    /// [`EncodeError::Batch`] if no batch is in flight; the device's error otherwise.
    fn collect(&mut self, out: &mut VectorBuf) -> Result<Collected, EncodeError>;
}

/// The location of a batch's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the host, pinned: the workers fill it, the device copies from it by DMA.
    Host,
    /// On the device: only code that runs there can fill it.
    Device,
}

/// Allocates memory of the given number of bytes; shared by the threads that fill batches.
pub type Allocate = Arc<dyn Fn(usize) -> Result<Box<dyn BatchMemory>, EncodeError> + Send + Sync>;

/// Returns an allocator of ordinary host memory, for encoders that read it.
pub fn host_allocator() -> Allocate {
    Arc::new(|bytes| Ok(Box::new(vec![0_u8; bytes])))
}

/// Images together with the memory they lie in.
pub struct Batch {
    /// `[images, height, width, 3]` samples of the encoder's type from its start; bytes behind them are ignored.
    pub memory: Box<dyn BatchMemory>,
    /// The number of images, at least one.
    pub images: usize,
    /// The size of every image.
    pub size: Size,
}

/// A collected batch.
pub struct Collected {
    /// As it was submitted.
    pub batch: Batch,
    /// The times at which the device did each part.
    pub spans: EncodeSpans,
}

/// The times at which a device did each part of an encoding, measured by the device's clock and converted to the
/// host's. Parts of neighbouring batches overlap; those of one batch do not.
#[derive(Clone, Copy, Debug)]
pub struct EncodeSpans {
    /// The copy of the batch to the device.
    pub copy_in: (Instant, Duration),
    /// The network.
    pub forward: (Instant, Duration),
    /// The copy of the vectors to the host.
    pub copy_out: (Instant, Duration),
}

impl EncodeSpans {
    /// Returns successive spans since `started`, for an encoder that does not overlap.
    pub fn in_turn(started: Instant, times: EncodeTimes) -> Self {
        let forward = started + times.copy_in;
        Self {
            copy_in: (started, times.copy_in),
            forward: (forward, times.forward),
            copy_out: (forward + times.forward, times.copy_out),
        }
    }

    /// The duration of each part.
    pub fn times(&self) -> EncodeTimes {
        EncodeTimes { copy_in: self.copy_in.1, forward: self.forward.1, copy_out: self.copy_out.1 }
    }
}
