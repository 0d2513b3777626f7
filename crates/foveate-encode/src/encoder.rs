use foveate_core::{PixelBatch, VectorBuf};

use crate::error::EncodeError;
use crate::overlap::Overlap;
use crate::resident::Resident;
use crate::spec::EncoderSpec;
use crate::times::EncodeTimes;

/// Runs a vision model. It takes raw u8 pixels and normalizes them itself, by its model's mean and std.
pub trait Encoder: Send {
    /// The encoder's inputs and outputs; constant over its life.
    fn spec(&self) -> &EncoderSpec;

    /// Encodes `batch` (1 to [`EncoderSpec::max_batch`] images of [`EncoderSpec::input`]) into f32 rows `[n, dim]`, in
    /// order, complete on the host at return. Rows are **not** L2-normalized. A row depends on its own image alone, not
    /// on the batch around it: bit for bit if `spec().batch_invariant` is set.
    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError>;

    /// The last batch, if it is still in a device's memory. `None` before the first batch, if the batch lay in its
    /// caller's memory, and for every encoder that reads the host's memory.
    fn resident(&mut self) -> Option<&mut dyn Resident>;

    /// The interface for several batches in flight, if a device works beside the host; `None` if there is only
    /// [`Self::encode`].
    fn overlap(&mut self) -> Option<&mut dyn Overlap>;
}
