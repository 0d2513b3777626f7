use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use crate::device::Device;
use crate::driver::{BLOCKING, Handle, NON_BLOCKING, NOT_READY, UNTIMED};
use crate::error::CudaError;

/// A queue of a device's work: its work runs in order, concurrently with other streams'. Streams wait for each other
/// only through an [`Event`], and never for the driver's own stream.
#[derive(Debug)]
pub struct Stream {
    device: Device,
    handle: Handle,
    /// Recorded by [`Self::synchronize`].
    reached: Event,
    /// During a capture, the objects that the graph will need.
    capturing: Mutex<Option<Vec<Needed>>>,
}

/// An object that must outlive the work that uses it.
pub(crate) type Needed = Arc<dyn Any + Send + Sync>;

impl Stream {
    /// Creates an empty stream.
    ///
    /// # Errors
    /// The driver's own errors.
    pub fn new(device: &Device) -> Result<Self, CudaError> {
        let mut handle = Handle::NULL;
        let reached = Event::with_flags(device, BLOCKING | UNTIMED)?;
        // SAFETY: `handle` is a valid place for the handle.
        device.call("cuStreamCreate", |driver| unsafe { (driver.cuStreamCreate)(&mut handle, NON_BLOCKING) })?;
        Ok(Self { device: device.clone(), handle, reached, capturing: Mutex::new(None) })
    }

    /// The stream's device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Waits until all of the stream's work is done.
    ///
    /// # Errors
    /// The driver's own errors, including those of work that failed meanwhile.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        // The driver's own wait for a stream spins.
        self.record(&self.reached)?;
        self.reached.synchronize()
    }

    /// Records `event` after the work that the stream was given so far.
    ///
    /// # Errors
    /// The driver's own errors; also if the event belongs to another device.
    pub fn record(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: both are alive.
        self.device.call("cuEventRecord", |driver| unsafe { (driver.cuEventRecord)(event.handle, self.handle) })
    }

    /// Makes the stream's later work wait for `event`, as it was last recorded; the host does not wait. An event that
    /// was never recorded counts as past.
    ///
    /// # Errors
    /// The driver's own errors.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        let stream = self.handle;
        let event = event.handle;
        // SAFETY: both are alive; 0 is the only valid value of the flags.
        self.device.call("cuStreamWaitEvent", |driver| unsafe { (driver.cuStreamWaitEvent)(stream, event, 0) })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Records an object that the next work needs, for the graph under capture, if there is one.
    pub(crate) fn need<T: Any + Send + Sync>(&self, what: &Arc<T>) {
        if let Some(needed) = &mut *self.capturing.lock().unwrap_or_else(PoisonError::into_inner) {
            needed.push(Arc::<T>::clone(what));
        }
    }

    /// Starts to record needed objects (`true`), or returns those recorded since.
    pub(crate) fn note_needs(&self, start: bool) -> Vec<Needed> {
        let mut capturing = self.capturing.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *capturing, start.then(Vec::new)).unwrap_or_default()
    }
}

impl Drop for Stream {
    /// Ignores errors: they mean that the context is lost, and the stream with it.
    fn drop(&mut self) {
        let _ = self.synchronize();
        // SAFETY: the stream is owned, and empty.
        let _ = self.device.call("cuStreamDestroy", |driver| unsafe { (driver.cuStreamDestroy_v2)(self.handle) });
    }
}

/// A moment in a stream, timed by the device's clock.
#[derive(Debug)]
pub struct Event {
    device: Device,
    handle: Handle,
}

impl Event {
    /// Creates an event that was never recorded.
    ///
    /// # Errors
    /// The driver's own errors.
    pub fn new(device: &Device) -> Result<Self, CudaError> {
        Self::with_flags(device, BLOCKING)
    }

    fn with_flags(device: &Device, flags: u32) -> Result<Self, CudaError> {
        let mut handle = Handle::NULL;
        // SAFETY: `handle` is a valid place for the handle; unless the flags say otherwise, the event records the time.
        device.call("cuEventCreate", |driver| unsafe { (driver.cuEventCreate)(&mut handle, flags) })?;
        Ok(Self { device: device.clone(), handle })
    }

    /// The event's device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Waits until it has happened, as it was last recorded; returns at once if it never was.
    ///
    /// # Errors
    /// The driver's own errors, including those of work that failed before it.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the event is alive.
        self.device.call("cuEventSynchronize", |driver| unsafe { (driver.cuEventSynchronize)(self.handle) })
    }

    /// Returns true if the work before the event is done, as it was last recorded; also if it never was.
    ///
    /// # Errors
    /// The driver's own errors, including those of that work.
    pub fn has_happened(&self) -> Result<bool, CudaError> {
        let mut is_done = false;
        // SAFETY: the event is alive.
        self.device.call("cuEventQuery", |driver| match unsafe { (driver.cuEventQuery)(self.handle) } {
            NOT_READY => 0,
            status => {
                is_done = status == 0;
                status
            }
        })?;
        Ok(is_done)
    }

    /// Returns the seconds from `earlier` to this event, negative if this one was first. Both must have happened. The
    /// resolution is half a microsecond, with 24 bits of precision.
    ///
    /// # Errors
    /// The driver's own errors: an event has not happened, or was never recorded.
    pub fn seconds_since(&self, earlier: &Self) -> Result<f64, CudaError> {
        let mut milliseconds = 0.0;
        // SAFETY: `milliseconds` is a valid place for the number, and both events are alive.
        self.device.call("cuEventElapsedTime", |driver| unsafe {
            (driver.cuEventElapsedTime)(&mut milliseconds, earlier.handle, self.handle)
        })?;
        Ok(f64::from(milliseconds) / 1000.0)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event is owned. The driver frees it when it has happened.
        let _ = self.device.call("cuEventDestroy", |driver| unsafe { (driver.cuEventDestroy_v2)(self.handle) });
    }
}
