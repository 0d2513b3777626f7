use foveate_core::VectorBuf;

use crate::error::EncodeError;
use crate::times::EncodeTimes;

/// A batch that is still in a device's memory after it was encoded. Encoding it again costs no copy from the host, which
/// is how an experiment measures what that copy costs.
pub trait Resident {
    /// Encodes the batch again. The rows are those that [`Encoder::encode`](crate::Encoder::encode) gave.
    ///
    /// # Errors
    /// [`EncodeError::Batch`] while batches are under way ([`Overlap`](crate::Overlap)); the device's own errors otherwise.
    fn encode_again(&mut self, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError>;
}
