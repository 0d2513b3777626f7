use std::any::Any;

use foveate_core::BatchMemory;

use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::CudaError;
use crate::stream::{Event, Stream};

/// The memory of a batch of images on a device.
///
/// A writer calls [`Self::filled_on`]; a reader makes its stream wait with [`Self::wait_on`].
#[derive(Debug)]
pub struct DevicePixels {
    buffer: Buffer,
    filled: Event,
}

impl DevicePixels {
    /// Allocates `bytes` of device memory, filled with zeros.
    ///
    /// # Errors
    /// As [`Buffer::zeroed`].
    pub fn new(device: &Device, bytes: usize) -> Result<Self, CudaError> {
        Ok(Self { buffer: Buffer::zeroed(device, bytes)?, filled: Event::new(device)? })
    }

    /// The memory.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The memory's device.
    pub fn device(&self) -> &Device {
        self.buffer.device()
    }

    /// Records that the work that `stream` was given so far fills it.
    ///
    /// # Errors
    /// The driver's own errors.
    pub fn filled_on(&mut self, stream: &Stream) -> Result<(), CudaError> {
        stream.record(&self.filled)
    }

    /// Makes `stream` wait until it is filled.
    ///
    /// # Errors
    /// The driver's own errors.
    pub fn wait_on(&self, stream: &Stream) -> Result<(), CudaError> {
        stream.wait(&self.filled)
    }
}

impl BatchMemory for DevicePixels {
    fn bytes(&self) -> usize {
        self.buffer.bytes()
    }

    fn host(&self) -> Option<&[u8]> {
        None
    }

    fn host_mut(&mut self) -> Option<&mut [u8]> {
        None
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
