use std::sync::Arc;

use crate::device::Device;
use crate::driver::Address;
use crate::error::CudaError;

/// Device memory, in bytes. Clones share the memory.
///
/// Code on the device reads and writes it, in the order of streams and events; nothing here prevents a race between two
/// streams. It is freed with the last clone, after the device has finished all work that it was given.
#[derive(Clone, Debug)]
pub struct Buffer(Arc<Allocation>);

/// The memory itself, freed with its last user.
#[derive(Debug)]
pub(crate) struct Allocation {
    device: Device,
    address: Address,
    bytes: usize,
}

/// Number types without padding for which every bit pattern is valid.
///
/// # Safety
/// Both must hold for the type.
// SAFETY: a declaration; the implementations justify themselves.
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
    /// Allocates `bytes` of device memory, at least one, filled with zeros.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`]; the driver's own errors otherwise.
    pub fn zeroed(device: &Device, bytes: usize) -> Result<Self, CudaError> {
        let buffer = Self(Arc::new(Allocation::new(device, bytes.max(1))?));
        let Allocation { address, bytes, .. } = *buffer.0;
        // SAFETY: the memory is that large, and not shared yet.
        device.apart("cuMemsetD8Async", |driver, stream| unsafe {
            (driver.cuMemsetD8Async)(address, 0, bytes, stream)
        })?;
        Ok(buffer)
    }

    /// Allocates memory for `values` and copies them there; complete at return.
    ///
    /// # Errors
    /// As [`Self::zeroed`].
    pub fn from_slice<T: Plain>(device: &Device, values: &[T]) -> Result<Self, CudaError> {
        let bytes = std::mem::size_of_val(values);
        let buffer = Self(Arc::new(Allocation::new(device, bytes.max(1))?));
        let to = buffer.0.address;
        let from = values.as_ptr().cast();
        // SAFETY: both sides are that large, and the device's side is not shared yet.
        device.apart("cuMemcpyHtoDAsync", |driver, stream| unsafe {
            (driver.cuMemcpyHtoDAsync_v2)(to, from, bytes, stream)
        })?;
        Ok(buffer)
    }

    /// Copies the first bytes into `values`, after all work that the device was given so far.
    ///
    /// # Errors
    /// [`CudaError::Misfit`] if the buffer is smaller than `values`; the driver's own errors otherwise.
    pub fn read<T: Plain>(&self, values: &mut [T]) -> Result<(), CudaError> {
        let bytes = std::mem::size_of_val(values);
        self.check_room(bytes)?;
        let Allocation { device, address, .. } = &*self.0;
        device.synchronize()?;
        // SAFETY: both sides are at least that large, and any bits are a `T`. The call returns when it is done.
        device.apart("cuMemcpyDtoHAsync", |driver, stream| unsafe {
            (driver.cuMemcpyDtoHAsync_v2)(values.as_mut_ptr().cast(), *address, bytes, stream)
        })
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// The memory's device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    pub(crate) fn address(&self) -> Address {
        self.0.address
    }

    pub(crate) fn allocation(&self) -> &Arc<Allocation> {
        &self.0
    }

    /// Refuses a size beyond the buffer's.
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
        // SAFETY: `address` is a valid place for the address.
        let taken = device.call("cuMemAlloc", |driver| unsafe { (driver.cuMemAlloc_v2)(&mut address, bytes) });
        taken.map_err(|error| out_of_memory(device, bytes, error))?;
        Ok(Self { device: device.clone(), address, bytes })
    }
}

/// Adds the memory's sizes to the driver's error if it means out of memory.
fn out_of_memory(device: &Device, bytes: usize, error: CudaError) -> CudaError {
    match (&error, device.memory()) {
        (CudaError::Call { name, .. }, Ok((free, total))) if name == "CUDA_ERROR_OUT_OF_MEMORY" => {
            CudaError::OutOfMemory { bytes, free, total }
        }
        _ => error,
    }
}

impl Drop for Allocation {
    /// Waits for the whole device. Frees in a stream's order need memory pools, which some devices lack, and between
    /// batches of a steady state nothing is freed.
    ///
    /// Ignores errors: they mean that the context is lost, and its memory with it.
    fn drop(&mut self) {
        // SAFETY: the memory is owned, and no work that the device was given uses it any more.
        let _ = self.device.after_all_work("cuMemFree", |driver| unsafe { (driver.cuMemFree_v2)(self.address) });
    }
}
