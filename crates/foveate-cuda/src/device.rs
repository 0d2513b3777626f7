use std::ffi::c_int;
use std::fmt;
use std::sync::Arc;

use foveate_core::{Health, Problem};

use crate::driver::{Driver, Functions, Handle, Status};
use crate::error::{CudaError, Version};

/// A GPU, with the context that the whole process shares on it. Clones are the same device. Objects on the device keep
/// it open.
#[derive(Clone)]
pub struct Device(Arc<Context>);

struct Context {
    driver: &'static Driver,
    context: Handle,
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
        let mut opened = Context {
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
        };
        // SAFETY: `context` is a valid place for the handle, and `number` is a device's.
        let status = unsafe { (driver.functions.cuDevicePrimaryCtxRetain)(&mut opened.context, number) };
        match driver.check("cuDevicePrimaryCtxRetain", status) {
            Ok(()) => Ok(Self(Arc::new(opened))),
            Err(error) => {
                // Nothing was retained, so nothing must be released.
                std::mem::forget(opened);
                Err(error)
            }
        }
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

    /// The driver's CUDA release.
    pub fn driver_version(&self) -> Version {
        self.0.driver.version
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
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are valid places for a number.
        self.call("cuMemGetInfo", |driver| unsafe { (driver.cuMemGetInfo_v2)(&mut free, &mut total) })?;
        Ok((free, total))
    }

    /// Waits until the device has done all work that any stream of the process was given.
    ///
    /// # Errors
    /// The driver's own errors, including those of work that failed meanwhile.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: no preconditions but the context, which `call` sets.
        self.call("cuCtxSynchronize", |driver| unsafe { (driver.cuCtxSynchronize)() })
    }

    /// Makes the device's context the calling thread's, and calls the driver.
    pub(crate) fn call(
        &self,
        function: &'static str,
        call: impl FnOnce(&Functions) -> Status,
    ) -> Result<(), CudaError> {
        let Context { driver, context, .. } = *self.0;
        // SAFETY: `open` retained the context, and the last clone releases it.
        driver.check("cuCtxSetCurrent", unsafe { (driver.functions.cuCtxSetCurrent)(context) })?;
        driver.check(function, call(&driver.functions))
    }
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

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once, and no object remains in it: each has a clone of the device.
        unsafe { (self.driver.functions.cuDevicePrimaryCtxRelease_v2)(self.number) };
    }
}

impl PartialEq for Device {
    /// Whether it is the same GPU.
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
