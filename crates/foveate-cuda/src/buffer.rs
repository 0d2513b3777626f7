use std::sync::Arc;

use crate::device::Device;
use crate::driver::Address;
use crate::error::CudaError;

/// Memory of a device, in bytes. Clones are the same memory.
///
/// Code on the device reads and writes it, in the order that streams and events give; nothing here keeps two streams from
/// racing for its values. It is freed when the last clone is gone, after the device has finished what it was given.
#[derive(Clone, Debug)]
pub struct Buffer(Arc<Allocation>);

/// What is freed when nobody needs it any more.
#[derive(Debug)]
pub(crate) struct Allocation {
    device: Device,
    address: Address,
    bytes: usize,
}

/// Numbers whose every pattern of bits is one, without padding.
///
/// # Safety
/// Exactly that must be true of the type.
// SAFETY: a declaration; the implementations say why they are right.
pub unsafe trait Plain: Copy + Send + 'static {}
// SAFETY: a number without padding, any bits.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}
// SAFETY: as above; transparent around a u16.
unsafe impl Plain for half::f16 {}
// SAFETY: as above; transparent around a u16.
unsafe impl Plain for half::bf16 {}

impl Buffer {
    /// Takes `bytes` of the device's memory, all zeros; at least one.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`]; what the driver says otherwise.
    pub fn zeroed(device: &Device, bytes: usize) -> Result<Self, CudaError> {
        let buffer = Self(Arc::new(Allocation::new(device, bytes.max(1))?));
        let Allocation { address, bytes, .. } = *buffer.0;
        // SAFETY: the memory is that large, and nobody else has it yet.
        device.call("cuMemsetD8", |driver| unsafe { (driver.cuMemsetD8_v2)(address, 0, bytes) })?;
        // The driver's own stream, which ours do not wait for, may still be at it.
        device.synchronize()?;
        Ok(buffer)
    }

    /// Takes memory for `values` and copies them there; complete at return.
    ///
    /// # Errors
    /// As [`Self::zeroed`].
    pub fn from_slice<T: Plain>(device: &Device, values: &[T]) -> Result<Self, CudaError> {
        let bytes = std::mem::size_of_val(values);
        let buffer = Self(Arc::new(Allocation::new(device, bytes.max(1))?));
        let (to, from) = (buffer.0.address, values.as_ptr().cast());
        // SAFETY: both sides are that large, and nobody else has the device's side yet.
        device.call("cuMemcpyHtoD", |driver| unsafe { (driver.cuMemcpyHtoD_v2)(to, from, bytes) })?;
        // As above: the last part of the copy may still be under way.
        device.synchronize()?;
        Ok(buffer)
    }

    /// Copies the first bytes of it into `values`, after everything that the device was given so far.
    ///
    /// # Errors
    /// [`CudaError::Misfit`] when it is smaller than `values`; what the driver says otherwise.
    pub fn read<T: Plain>(&self, values: &mut [T]) -> Result<(), CudaError> {
        let bytes = std::mem::size_of_val(values);
        self.check_room(bytes)?;
        let Allocation { device, address, .. } = &*self.0;
        device.synchronize()?;
        // SAFETY: both sides are at least that large, and any bits are a `T`. The call returns when it is done.
        device.call("cuMemcpyDtoH", |driver| unsafe {
            (driver.cuMemcpyDtoH_v2)(values.as_mut_ptr().cast(), *address, bytes)
        })
    }

    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Where it lies.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    pub(crate) fn address(&self) -> Address {
        self.0.address
    }

    pub(crate) fn allocation(&self) -> &Arc<Allocation> {
        &self.0
    }

    /// Refuses to use more of it than there is.
    pub(crate) fn check_room(&self, bytes: usize) -> Result<(), CudaError> {
        if bytes <= self.bytes() {
            return Ok(());
        }
        Err(CudaError::Misfit(format!("{bytes} bytes of a buffer that has {}", self.bytes())))
    }
}

impl Allocation {
    fn new(device: &Device, bytes: usize) -> Result<Self, CudaError> {
        let mut address = 0;
        // SAFETY: `address` is a place for the address.
        let taken = device.call("cuMemAlloc", |driver| unsafe { (driver.cuMemAlloc_v2)(&mut address, bytes) });
        taken.map_err(|error| out_of_memory(device, bytes, error))?;
        Ok(Self { device: device.clone(), address, bytes })
    }
}

/// Says how much there was, where that is what the driver means.
fn out_of_memory(device: &Device, bytes: usize, error: CudaError) -> CudaError {
    match (&error, device.memory()) {
        (CudaError::Call { name, .. }, Ok((free, total))) if name == "CUDA_ERROR_OUT_OF_MEMORY" => {
            CudaError::OutOfMemory { bytes, free, total }
        }
        _ => error,
    }
}

impl Drop for Allocation {
    /// Errors have nobody to go to: they mean that the context is lost, and its memory with it.
    fn drop(&mut self) {
        let _ = self.device.synchronize();
        // SAFETY: the memory is its own, and nothing that the device was given is still at work on it.
        let _ = self.device.call("cuMemFree", |driver| unsafe { (driver.cuMemFree_v2)(self.address) });
    }
}
