//! Copies between pinned memory and device memory, in a stream's order.

use crate::buffer::Buffer;
use crate::error::CudaError;
use crate::pinned::Pinned;
use crate::stream::Stream;

impl Stream {
    /// Copies the first `bytes` of `from` to the start of `to`. Returns at once; the copy borrows `from` until it is
    /// done.
    ///
    /// # Errors
    /// [`CudaError::Misfit`] if either is smaller; the driver's own errors otherwise.
    pub fn upload(&self, from: &mut Pinned, to: &Buffer, bytes: usize) -> Result<(), CudaError> {
        from.check_room(bytes)?;
        to.check_room(bytes)?;
        self.need(to.allocation());
        from.lend(self, |from| {
            // SAFETY: both sides are that large. The host's is lent until the copy is done, the device's is freed only
            // afterwards.
            self.device().call("cuMemcpyHtoDAsync", |driver| unsafe {
                (driver.cuMemcpyHtoDAsync_v2)(to.address(), from.cast(), bytes, self.handle())
            })
        })
    }

    /// Copies the first `bytes` of `from` to the start of `to`. Returns at once; the copy borrows `to` until it is
    /// done.
    ///
    /// # Errors
    /// As [`Self::upload`].
    pub fn download(&self, from: &Buffer, to: &mut Pinned, bytes: usize) -> Result<(), CudaError> {
        from.check_room(bytes)?;
        to.check_room(bytes)?;
        self.need(from.allocation());
        to.lend(self, |to| {
            // SAFETY: as in `upload`.
            self.device().call("cuMemcpyDtoHAsync", |driver| unsafe {
                (driver.cuMemcpyDtoHAsync_v2)(to.cast(), from.address(), bytes, self.handle())
            })
        })
    }
}
