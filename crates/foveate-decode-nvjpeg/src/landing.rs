//! The memory of a finished batch.

use foveate_core::BatchMemory;
use foveate_cuda::{Buffer, CudaError, Device, DevicePixels, Pinned, Stream};
use foveate_preprocess::PreprocessError;

use crate::fault::fault;

/// The path from the device to a batch's memory on the host, reused from batch to batch.
#[derive(Default)]
pub(crate) struct Landing(Option<(Buffer, Pinned)>);

impl Landing {
    /// Returns device memory for a batch of at most `bytes`: the batch's own if it lies on the device.
    pub(crate) fn buffer(
        &mut self,
        device: &Device,
        out: &mut dyn BatchMemory,
        bytes: usize,
    ) -> Result<Buffer, PreprocessError> {
        if out.bytes() < bytes {
            let reason = format!("no room for {bytes} bytes in the batch's {}", out.bytes());
            return Err(PreprocessError::Unsupported(reason));
        }
        if let Some(pixels) = out.as_any().downcast_ref::<DevicePixels>() {
            if pixels.device() == device {
                return Ok(pixels.buffer().clone());
            }
        } else if out.host_mut().is_some() {
            return self.staging(device, bytes).map_err(fault);
        }
        let reason = format!("the batch's memory is neither on the host nor on {device:?}");
        Err(PreprocessError::Unsupported(reason))
    }

    fn staging(&mut self, device: &Device, bytes: usize) -> Result<Buffer, CudaError> {
        let staging = match self.0.take().filter(|(buffer, _)| buffer.bytes() >= bytes) {
            Some(kept) => kept,
            None => (Buffer::zeroed(device, bytes)?, Pinned::new(device, bytes)?),
        };
        Ok(self.0.insert(staging).0.clone())
    }

    /// Copies the first `bytes` to `out`'s memory, complete at return. `stream` has filled the memory from
    /// [`Self::buffer`].
    pub(crate) fn land(&mut self, stream: &Stream, out: &mut dyn BatchMemory, bytes: usize) -> Result<(), CudaError> {
        if let Some(pixels) = out.as_any_mut().downcast_mut::<DevicePixels>() {
            pixels.filled_on(stream)?;
        } else if bytes == 0 {
            return Ok(());
        } else if let (Some((buffer, pinned)), Some(host)) = (&mut self.0, out.host_mut()) {
            stream.download(buffer, pinned, bytes)?;
            host[..bytes].copy_from_slice(&pinned.as_slice()[..bytes]);
        }
        stream.synchronize()
    }
}
