use std::ffi::{c_int, c_uint};
use std::fmt;
use std::sync::Arc;

use foveate_core::{Health, Problem};

use crate::capture::no_capture;
use crate::driver::{Driver, Functions, Handle, NON_BLOCKING, Status};
use crate::error::CudaError;

/// A GPU, with the context that the whole process shares on it. Clones are the same device. Objects on the device keep
/// it open.
#[derive(Clone)]
pub struct Device(Arc<DeviceContext>);

struct DeviceContext {
    driver: &'static Driver,
    context: Handle,
    /// For allocations and for copies that the host waits for.
    stream: Handle,
    number: c_int,
    ordinal: usize,
    name: String,
    compute_capability: (u32, u32),
    multiprocessors: u32,
}

/// `CUdevice_attribute`.
const MULTIPROCESSORS: c_int = 16;
const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
const COMPUTE_CAPABILITY_MINOR: c_int = 76;

/// `CU_CTX_SCHED_…`: how a thread waits for the device. `BLOCKING_SYNC` sleeps.
const SCHEDULING: c_uint = 7;
const BLOCKING_SYNC: c_uint = 4;

/// These numbers' names in the headers.
#[cfg(test)]
pub(crate) const NUMBERS: &[(&str, i64)] = &[
    ("CU_CTX_SCHED_MASK", SCHEDULING as i64),
    ("CU_CTX_SCHED_BLOCKING_SYNC", BLOCKING_SYNC as i64),
    ("CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT", MULTIPROCESSORS as i64),
    ("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR", COMPUTE_CAPABILITY_MAJOR as i64),
    ("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR", COMPUTE_CAPABILITY_MINOR as i64),
];

impl Device {
    /// Opens device `ordinal`, counted from 0.
    ///
    /// # Errors
    /// [`CudaError::NoDriver`], [`CudaError::DriverTooOld`] or [`CudaError::NoDevice`]; the driver's own errors
    /// otherwise.
    pub fn open(ordinal: usize) -> Result<Self, CudaError> {
        let driver = match Driver::get() {
            // The driver reported that there is no device at all, before the ordinal was checked.
            Err(CudaError::NoDevice { devices, .. }) => return Err(CudaError::NoDevice { ordinal, devices }),
            other => other?,
        };
        if ordinal >= driver.count()? {
            return Err(CudaError::NoDevice { ordinal, devices: Self::names()? });
        }
        let number = driver.device(ordinal)?;
        let mut opened = DeviceContext {
            driver,
            number,
            ordinal,
            name: driver.name(number)?,
            compute_capability: (
                driver.attribute(COMPUTE_CAPABILITY_MAJOR, number)?,
                driver.attribute(COMPUTE_CAPABILITY_MINOR, number)?,
            ),
            multiprocessors: driver.attribute(MULTIPROCESSORS, number)?,
            context: Handle::NULL,
            stream: Handle::NULL,
        };
        sleep_in_waits(driver, number);
        // SAFETY: `context` is a valid place for the handle, and `number` is a device's.
        let status = unsafe { (driver.functions.cuDevicePrimaryCtxRetain)(&mut opened.context, number) };
        if let Err(error) = driver.check("cuDevicePrimaryCtxRetain", status) {
            // Nothing was retained, so nothing must be released.
            std::mem::forget(opened);
            return Err(error);
        }
        opened.start()?;
        Ok(Self(Arc::new(opened)))
    }

    /// The names of all devices, in order; empty if there is none.
    ///
    /// # Errors
    /// [`CudaError::NoDriver`] or [`CudaError::DriverTooOld`]; the driver's own errors otherwise.
    pub fn names() -> Result<Vec<String>, CudaError> {
        let driver = match Driver::get() {
            Err(CudaError::NoDevice { .. }) => return Ok(Vec::new()),
            other => other?,
        };
        (0..driver.count()?).map(|ordinal| driver.name(driver.device(ordinal)?)).collect()
    }

    /// The device's ordinal.
    pub fn ordinal(&self) -> usize {
        self.0.ordinal
    }

    /// `NVIDIA A100-SXM4-80GB`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The compute capability: `(8, 6)`, major first.
    pub fn compute_capability(&self) -> (u32, u32) {
        self.0.compute_capability
    }

    /// The number of multiprocessors.
    pub fn multiprocessors(&self) -> u32 {
        self.0.multiprocessors
    }

    /// The device's free and total memory in bytes.
    ///
    /// # Errors
    /// The driver's own errors.
    pub fn memory(&self) -> Result<(usize, usize), CudaError> {
        let mut free = 0;
        let mut total = 0;
        // SAFETY: both are valid places for a number.
        self.call("cuMemGetInfo", |driver| unsafe { (driver.cuMemGetInfo_v2)(&mut free, &mut total) })?;
        Ok((free, total))
    }

    /// Waits until the device has done all work that any stream of the process was given.
    ///
    /// # Errors
    /// The driver's own errors, including those of work that failed meanwhile.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.after_all_work("cuCtxSynchronize", |_| 0)
    }

    /// Calls the driver when the device has done all work that any stream of the process was given. If the wait fails,
    /// the context is lost, and the call is made nevertheless.
    pub(crate) fn after_all_work(
        &self,
        function: &'static str,
        call: impl FnOnce(&Functions) -> Status,
    ) -> Result<(), CudaError> {
        let _no_capture = no_capture();
        // SAFETY: no preconditions but the context, which `call` sets.
        let waited = self.call("cuCtxSynchronize", |driver| unsafe { (driver.cuCtxSynchronize)() });
        self.call(function, call).and(waited)
    }

    /// Enqueues work on a stream of the device's own, and waits for it. Other streams do not wait for it, nor it for
    /// them. Unlike the driver's own stream, it may be used while another stream captures.
    pub(crate) fn apart(
        &self,
        function: &'static str,
        enqueue: impl FnOnce(&Functions, Handle) -> Status,
    ) -> Result<(), CudaError> {
        let stream = self.0.stream;
        self.call(function, |driver| enqueue(driver, stream))?;
        // SAFETY: the stream lives as long as the context.
        self.call("cuStreamSynchronize", |driver| unsafe { (driver.cuStreamSynchronize)(stream) })
    }

    /// Makes the device's context the calling thread's, and calls the driver.
    pub(crate) fn call(
        &self,
        function: &'static str,
        call: impl FnOnce(&Functions) -> Status,
    ) -> Result<(), CudaError> {
        let DeviceContext { driver, context, .. } = *self.0;
        // SAFETY: `open` retained the context, and the last clone releases it.
        driver.check("cuCtxSetCurrent", unsafe { (driver.functions.cuCtxSetCurrent)(context) })?;
        driver.check(function, call(&driver.functions))
    }
}

/// Makes waits in the device's context sleep, so that decoders have the core. Other code of the process may use the
/// context already, or may have chosen how to wait; then its choice stays, as it does after an error.
fn sleep_in_waits(driver: &Driver, number: c_int) {
    let mut flags = 0;
    let mut is_active = 0;
    // SAFETY: both are valid places for a number, and `number` is a device's.
    unsafe {
        let known = (driver.functions.cuDevicePrimaryCtxGetState)(number, &mut flags, &mut is_active) == 0;
        if known && is_active == 0 && flags & SCHEDULING == 0 {
            (driver.functions.cuDevicePrimaryCtxSetFlags_v2)(number, flags | BLOCKING_SYNC);
        }
    }
}

/// The release of CUDA that the driver brings, whose compiler makes the kernels: `CUDA 12.8`.
///
/// # Errors
/// [`CudaError::NoDriver`] or [`CudaError::DriverTooOld`].
pub fn release() -> Result<String, CudaError> {
    Driver::get().map(|driver| format!("CUDA {}", driver.version))
}

/// Parses a CUDA device's number from `name` (`cuda`: 0, `cuda:1`: 1); `None` if it does not name a CUDA device.
pub fn ordinal(name: &str) -> Option<usize> {
    match name.strip_prefix("cuda")? {
        "" => Some(0),
        rest => rest.strip_prefix(':')?.parse().ok(),
    }
}

/// The health of a backend that runs on the CPU and, with `library`, on CUDA devices: the CPU and the available
/// devices, and a problem if there are devices but no `library`.
pub fn health(library: impl FnOnce() -> Result<String, CudaError>) -> Health {
    let cpu = Health::all_rust().on(["cpu".to_owned()]);
    // Without a driver or a device, the CPU alone is no problem.
    let Ok(names) = Device::names() else { return cpu };
    if names.is_empty() {
        return cpu;
    }
    match library() {
        Ok(library) => {
            let devices = (0..names.len()).map(|ordinal| format!("cuda:{ordinal}"));
            Health::library(library).on(cpu.devices.into_iter().chain(devices))
        }
        Err(error) => {
            let remedy = "the CPU works; for CUDA, install what is named".to_owned();
            Health { problem: Some(Problem { cause: format!("CUDA cannot be used: {error}"), remedy }), ..cpu }
        }
    }
}

impl DeviceContext {
    /// Creates the context's own stream.
    fn start(&mut self) -> Result<(), CudaError> {
        let Self { driver, context, stream, .. } = self;
        // SAFETY: the context is retained, and `stream` is a valid place for the handle.
        let statuses = unsafe {
            let current = (driver.functions.cuCtxSetCurrent)(*context);
            (current, if current == 0 { (driver.functions.cuStreamCreate)(stream, NON_BLOCKING) } else { 0 })
        };
        driver.check("cuCtxSetCurrent", statuses.0)?;
        driver.check("cuStreamCreate", statuses.1)
    }
}

impl Drop for DeviceContext {
    fn drop(&mut self) {
        let functions = &self.driver.functions;
        // SAFETY: the context was retained once, and no object remains in it but the stream: each has a clone of the
        // device. The stream is idle, because every use of it waits.
        unsafe {
            if self.stream != Handle::NULL && (functions.cuCtxSetCurrent)(self.context) == 0 {
                (functions.cuStreamDestroy_v2)(self.stream);
            }
            (functions.cuDevicePrimaryCtxRelease_v2)(self.number)
        };
    }
}

impl PartialEq for Device {
    /// Returns true if it is the same GPU.
    fn eq(&self, other: &Self) -> bool {
        self.0.number == other.0.number
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuda:{} ({})", self.0.ordinal, self.0.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_numbered() {
        assert_eq!((ordinal("cuda"), ordinal("cuda:3")), (Some(0), Some(3)));
        for other in ["cpu", "cuda:", "cuda:x", "cuda3", "gpu"] {
            assert_eq!(ordinal(other), None, "{other}");
        }
    }
}
