use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use crate::device::Device;
use crate::driver::Handle;
use crate::error::CudaError;

/// A queue of a device's work: what it is given is done in order, beside what other streams are given. None waits for
/// another but through an [`Event`], and none waits for the driver's own.
#[derive(Debug)]
pub struct Stream {
    device: Device,
    handle: Handle,
    /// What the graph that is being captured will need, while one is.
    capturing: Mutex<Option<Vec<Needed>>>,
}

/// Something that must outlive what is to be done with it.
pub(crate) type Needed = Arc<dyn Any + Send + Sync>;

/// `CU_STREAM_NON_BLOCKING`: not ordered with the driver's own stream.
const NON_BLOCKING: u32 = 1;

impl Stream {
    /// A new, empty one.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(device: &Device) -> Result<Self, CudaError> {
        let mut handle = Handle::NULL;
        // SAFETY: `handle` is a place for the handle.
        device.call("cuStreamCreate", |driver| unsafe { (driver.cuStreamCreate)(&mut handle, NON_BLOCKING) })?;
        Ok(Self { device: device.clone(), handle, capturing: Mutex::new(None) })
    }

    /// Whose work it queues.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Waits until all that it was given is done.
    ///
    /// # Errors
    /// What the driver says, also of work that failed on the way.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the stream is alive.
        self.device.call("cuStreamSynchronize", |driver| unsafe { (driver.cuStreamSynchronize)(self.handle) })
    }

    /// Notes in `event` when the device has done what the stream was given so far.
    ///
    /// # Errors
    /// What the driver says; also when the event is another device's.
    pub fn record(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: both are alive.
        self.device.call("cuEventRecord", |driver| unsafe { (driver.cuEventRecord)(event.handle, self.handle) })
    }

    /// Does nothing more before `event` has happened, as it was last recorded; the host does not wait. An event that was
    /// never recorded has happened.
    ///
    /// # Errors
    /// What the driver says.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        let (stream, event) = (self.handle, event.handle);
        // SAFETY: both are alive; 0 is the one value that the flags may have.
        self.device.call("cuStreamWaitEvent", |driver| unsafe { (driver.cuStreamWaitEvent)(stream, event, 0) })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Notes what the work that is given next needs, for the graph that is being captured, if one is.
    pub(crate) fn need<T: Any + Send + Sync>(&self, what: &Arc<T>) {
        if let Some(needed) = &mut *self.capturing.lock().unwrap_or_else(PoisonError::into_inner) {
            needed.push(Arc::<T>::clone(what));
        }
    }

    /// Starts to note what work needs (`true`), or gives what was noted since.
    pub(crate) fn note_needs(&self, start: bool) -> Vec<Needed> {
        let mut capturing = self.capturing.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *capturing, start.then(Vec::new)).unwrap_or_default()
    }
}

impl Drop for Stream {
    /// Errors have nobody to go to: they mean that the context is lost, and the stream with it.
    fn drop(&mut self) {
        let _ = self.synchronize();
        // SAFETY: the stream is its own, and empty.
        let _ = self.device.call("cuStreamDestroy", |driver| unsafe { (driver.cuStreamDestroy_v2)(self.handle) });
    }
}

/// A moment in a stream, by the device's clock.
#[derive(Debug)]
pub struct Event {
    device: Device,
    handle: Handle,
}

impl Event {
    /// One that was never recorded.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(device: &Device) -> Result<Self, CudaError> {
        let mut handle = Handle::NULL;
        // SAFETY: `handle` is a place for the handle; without flags, it takes the time.
        device.call("cuEventCreate", |driver| unsafe { (driver.cuEventCreate)(&mut handle, 0) })?;
        Ok(Self { device: device.clone(), handle })
    }

    /// Whose clock it is by.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Waits until it has happened, as it was last recorded; returns at once if it never was.
    ///
    /// # Errors
    /// What the driver says, also of work that failed before it.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the event is alive.
        self.device.call("cuEventSynchronize", |driver| unsafe { (driver.cuEventSynchronize)(self.handle) })
    }

    /// Seconds from `earlier` to this one, negative when it was the later one. Both must have happened. Fine to half a
    /// microsecond, and to 24 bits.
    ///
    /// # Errors
    /// What the driver says: that one has not happened, or was never recorded.
    pub fn seconds_since(&self, earlier: &Self) -> Result<f64, CudaError> {
        let mut milliseconds = 0.0;
        // SAFETY: `milliseconds` is a place for the number, and both events are alive.
        self.device.call("cuEventElapsedTime", |driver| unsafe {
            (driver.cuEventElapsedTime)(&mut milliseconds, earlier.handle, self.handle)
        })?;
        Ok(f64::from(milliseconds) / 1000.0)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event is its own. The driver frees it when it has happened.
        let _ = self.device.call("cuEventDestroy", |driver| unsafe { (driver.cuEventDestroy_v2)(self.handle) });
    }
}
