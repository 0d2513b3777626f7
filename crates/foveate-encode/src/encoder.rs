use foveate_core::{PixelBatch, VectorBuf};

use crate::error::EncodeError;
use crate::overlap::Overlap;
use crate::resident::Resident;
use crate::spec::EncoderSpec;
use crate::times::EncodeTimes;

/// Runs a vision model. Normalization belongs to it: it takes raw u8 pixels and knows the mean and std of its model.
pub trait Encoder: Send {
    /// What it takes and gives; constant over its life.
    fn spec(&self) -> &EncoderSpec;

    /// Turns `batch` (any length from 1 to [`EncoderSpec::max_batch`], images of [`EncoderSpec::input`]) into f32
    /// rows `[n, dim]`, in order, complete on the host at return. Rows are **not** L2-normalized. A row depends on its own image
    /// alone, not on the batch around it: bit for bit where `spec().batch_invariant` says so.
    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError>;

    /// The last batch, where it is still in the memory of a device. `None` before the first batch, when the batch lay in
    /// its caller's memory, and for every encoder that reads the host's memory.
    fn resident(&mut self) -> Option<&mut dyn Resident>;

    /// How to keep several batches under way, where a device works beside the host; `None` where [`Self::encode`] is all
    /// there is.
    fn overlap(&mut self) -> Option<&mut dyn Overlap>;
}
