use foveate_core::VectorBuf;

use crate::error::EncodeError;
use crate::times::EncodeTimes;

/// A batch that stays in a device's memory after it was encoded. Encoding it again needs no copy from the host, which
/// lets an experiment measure the cost of that copy.
pub trait Resident {
    /// Encodes the batch again. The rows equal those from [`Encoder::encode`](crate::Encoder::encode).
    ///
    /// # Errors
    /// [`EncodeError::Batch`] while batches are in flight ([`Overlap`](crate::Overlap)); the device's own errors
    /// otherwise.
    fn encode_again(&mut self, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError>;
}
