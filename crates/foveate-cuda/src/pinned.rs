use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};

use foveate_core::BatchMemory;

use crate::capture::no_capture;
use crate::device::Device;
use crate::error::CudaError;
use crate::stream::{Event, Stream};

/// Host memory that devices access directly (page-locked, for all devices of the process).
///
/// A copy in flight borrows it: access to its bytes waits for the end of the copy.
#[derive(Debug)]
pub struct Pinned {
    device: Device,
    start: *mut u8,
    bytes: usize,
    /// For each device that it was lent to, recorded after the last copy there.
    copied: Vec<Event>,
    /// The index of the most recent copy's event.
    last: usize,
    /// True if that event may not have happened yet.
    is_lent: AtomicBool,
}

// SAFETY: the memory is owned; `&self` only reads it, `&mut self` writes it.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

/// `CU_MEMHOSTALLOC_PORTABLE`: pinned for every context of the process.
const PORTABLE: u32 = 1;

/// These numbers' names in the headers.
#[cfg(test)]
pub(crate) const NUMBERS: &[(&str, i64)] = &[("CU_MEMHOSTALLOC_PORTABLE", PORTABLE as i64)];

impl Pinned {
    /// Allocates `bytes` of host memory, at least one, filled with zeros.
    ///
    /// # Errors
    /// The driver's own errors.
    pub fn new(device: &Device, bytes: usize) -> Result<Self, CudaError> {
        let copied = vec![Event::new(device)?];
        let bytes = bytes.max(1);
        let mut start = std::ptr::null_mut();
        let _no_capture = no_capture();
        // SAFETY: `start` is a valid place for the address; afterwards, the memory behind it is that large and not
        // shared.
        device.call("cuMemHostAlloc", |driver| unsafe {
            let status = (driver.cuMemHostAlloc)(&mut start, bytes, PORTABLE);
            if status == 0 {
                start.cast::<u8>().write_bytes(0, bytes);
            }
            status
        })?;
        let device = device.clone();
        let start = start.cast();
        Ok(Self { device, start, bytes, copied, last: 0, is_lent: AtomicBool::new(false) })
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes, once no copy is in flight.
    pub fn as_slice(&self) -> &[u8] {
        self.wait();
        // SAFETY: it is that large, initialized, and no device uses it: copies begin with `lend`, which takes `&mut`.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    /// The bytes for writing, once no copy is in flight.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.wait();
        // SAFETY: as above, and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }

    /// The first bytes as numbers, once no copy is in flight.
    ///
    /// # Errors
    /// [`CudaError::Misfit`] if it is smaller.
    pub fn as_f32(&self, count: usize) -> Result<&[f32], CudaError> {
        self.check_room(count.saturating_mul(size_of::<f32>()))?;
        self.wait();
        // SAFETY: as in `as_slice`; it begins on a page, so it is aligned, and any bits are a valid f32.
        Ok(unsafe { std::slice::from_raw_parts(self.start.cast(), count) })
    }

    pub(crate) fn check_room(&self, bytes: usize) -> Result<(), CudaError> {
        if bytes <= self.bytes {
            return Ok(());
        }
        Err(CudaError::Misfit(format!("{bytes} bytes of pinned memory that has {}", self.bytes)))
    }

    /// Lends it to the copy that `begin` starts on `stream` from or to its start, until the copy is done.
    pub(crate) fn lend(
        &mut self,
        stream: &Stream,
        begin: impl FnOnce(*mut u8) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        if self.is_lent.load(Ordering::Acquire) {
            // A wait for this copy thus includes the one before it.
            stream.wait(&self.copied[self.last])?;
        }
        self.last = self.event_of(stream.device())?;
        self.is_lent.store(true, Ordering::Release);
        begin(self.start).and_then(|()| stream.record(&self.copied[self.last])).inspect_err(|_| {
            // Started or not, the copy is over after this; an error means that the context is lost and its copies with
            // it.
            let _ = stream.synchronize();
        })
    }

    fn event_of(&mut self, device: &Device) -> Result<usize, CudaError> {
        if let Some(at) = self.copied.iter().position(|event| event.device() == device) {
            return Ok(at);
        }
        self.copied.push(Event::new(device)?);
        Ok(self.copied.len() - 1)
    }

    fn wait(&self) {
        if self.is_lent.load(Ordering::Acquire) {
            // An error means that the context is lost, and the copy with it.
            let _ = self.copied[self.last].synchronize();
            self.is_lent.store(false, Ordering::Release);
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.wait();
        let _no_capture = no_capture();
        // SAFETY: the memory is owned, and no copy is in flight.
        let _ = self.device.call("cuMemFreeHost", |driver| unsafe { (driver.cuMemFreeHost)(self.start.cast()) });
    }
}

impl BatchMemory for Pinned {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn host(&self) -> Option<&[u8]> {
        Some(self.as_slice())
    }

    fn host_mut(&mut self) -> Option<&mut [u8]> {
        Some(self.as_mut_slice())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
