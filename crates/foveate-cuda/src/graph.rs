use crate::capture::{Capturing, no_capture};
use crate::device::Device;
use crate::driver::Handle;
use crate::error::CudaError;
use crate::stream::{Needed, Stream};

/// Work that was captured once and is launched on a stream as a whole, for about the cost of one launch.
#[derive(Debug)]
pub struct Graph {
    device: Device,
    handle: Handle,
    /// The memory and the code that it works with.
    _needed: Vec<Needed>,
}

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: other threads are not restricted meanwhile.
const THREAD_LOCAL: i32 = 1;

/// These numbers' names in the headers.
#[cfg(test)]
pub(crate) const NUMBERS: &[(&str, i64)] = &[("CU_STREAM_CAPTURE_MODE_THREAD_LOCAL", THREAD_LOCAL as i64)];

impl Graph {
    /// Captures the work that `work` enqueues on `stream`, without running it. `work` must neither wait for the stream
    /// nor allocate or drop device memory.
    ///
    /// # Errors
    /// The errors of `work`; the driver's own errors otherwise.
    pub fn capture<E: From<CudaError>>(stream: &Stream, work: impl FnOnce() -> Result<(), E>) -> Result<Self, E> {
        let device = stream.device().clone();
        // Until the end: instantiation may load code and take memory, beside which no other thread may capture.
        let _capturing = Capturing::begin();
        // SAFETY: the stream is alive.
        device.call("cuStreamBeginCapture", |driver| unsafe {
            (driver.cuStreamBeginCapture_v2)(stream.handle(), THREAD_LOCAL)
        })?;
        stream.note_needs(true);
        let worked = work();
        let needed = stream.note_needs(false);
        let mut captured = Captured { device: &device, graph: Handle::NULL };
        // SAFETY: `graph` is a valid place for the handle.
        let ended = device.call("cuStreamEndCapture", |driver| unsafe {
            (driver.cuStreamEndCapture)(stream.handle(), &mut captured.graph)
        });
        worked?;
        ended?;
        let mut handle = Handle::NULL;
        // SAFETY: `handle` is a valid place for the handle, and the graph was captured just now.
        device.call("cuGraphInstantiate", |driver| unsafe {
            (driver.cuGraphInstantiateWithFlags)(&mut handle, captured.graph, 0)
        })?;
        let graph = Self { device: device.clone(), handle, _needed: needed };
        // The first launch would do it otherwise.
        // SAFETY: both are alive.
        device.call("cuGraphUpload", |driver| unsafe { (driver.cuGraphUpload)(handle, stream.handle()) })?;
        Ok(graph)
    }

    /// Launches the graph on `stream`. Returns at once.
    ///
    /// # Errors
    /// The driver's own errors.
    pub fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: both are alive, and so is everything that the graph works with, until the device is done.
        self.device.call("cuGraphLaunch", |driver| unsafe { (driver.cuGraphLaunch)(self.handle, stream.handle()) })
    }
}

impl Drop for Graph {
    /// Ignores errors: they mean that the context is lost, and the graph with it.
    fn drop(&mut self) {
        let Self { device, handle, .. } = self;
        let _no_capture = no_capture();
        // SAFETY: the graph is owned. The driver keeps it as long as it runs; the memory and the code that it works
        // with wait for that themselves.
        let _ = device.call("cuGraphExecDestroy", |driver| unsafe { (driver.cuGraphExecDestroy)(*handle) });
    }
}

/// A captured graph, which is no longer needed once it is instantiated.
struct Captured<'a> {
    device: &'a Device,
    graph: Handle,
}

impl Drop for Captured<'_> {
    fn drop(&mut self) {
        if self.graph != Handle::NULL {
            // SAFETY: the graph is owned.
            let _ = self.device.call("cuGraphDestroy", |driver| unsafe { (driver.cuGraphDestroy)(self.graph) });
        }
    }
}
