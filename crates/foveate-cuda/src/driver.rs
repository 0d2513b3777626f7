//! The driver's functions, loaded once.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Arc, OnceLock};

use crate::error::{CudaError, Version, one_line};
use crate::library::{self, functions};

/// A pointer from the driver, which only the driver reads: a context, a stream, an event, ….
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) *mut c_void);

impl Handle {
    pub(crate) const NULL: Self = Self(std::ptr::null_mut());
}

// SAFETY: the driver's objects may be used from any thread, and by several at once.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// An address in a device's memory.
pub(crate) type Address = u64;
/// `CUresult`: 0, or an error. Not an enum, because newer drivers have newer errors.
pub(crate) type Status = c_int;

/// `CU_STREAM_NON_BLOCKING`: a stream that is not ordered with the driver's own.
pub(crate) const NON_BLOCKING: c_uint = 1;

/// `CU_EVENT_BLOCKING_SYNC`: a thread that waits for the event sleeps. Otherwise it keeps a core busy, which the
/// decoders need.
pub(crate) const BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`: an event that is only waited for.
pub(crate) const UNTIMED: c_uint = 2;

/// `CUDA_ERROR_NOT_READY`: what was asked for is still to be done.
pub(crate) const NOT_READY: Status = 600;

functions! {
    /// Declared as in CUDA 12.0; every later driver has all of them.
    Functions {
        fn cuInit(c_uint) -> Status;
        fn cuDriverGetVersion(*mut c_int) -> Status;
        fn cuGetErrorName(Status, *mut *const c_char) -> Status;
        fn cuGetErrorString(Status, *mut *const c_char) -> Status;
        fn cuDeviceGetCount(*mut c_int) -> Status;
        fn cuDeviceGet(*mut c_int, c_int) -> Status;
        fn cuDeviceGetName(*mut c_char, c_int, c_int) -> Status;
        fn cuDeviceGetAttribute(*mut c_int, c_int, c_int) -> Status;
        fn cuDevicePrimaryCtxGetState(c_int, *mut c_uint, *mut c_int) -> Status;
        fn cuDevicePrimaryCtxSetFlags_v2(c_int, c_uint) -> Status;
        fn cuDevicePrimaryCtxRetain(*mut Handle, c_int) -> Status;
        fn cuDevicePrimaryCtxRelease_v2(c_int) -> Status;
        fn cuCtxSetCurrent(Handle) -> Status;
        fn cuCtxSynchronize() -> Status;
        fn cuMemGetInfo_v2(*mut usize, *mut usize) -> Status;
        fn cuMemAlloc_v2(*mut Address, usize) -> Status;
        fn cuMemFree_v2(Address) -> Status;
        fn cuMemHostAlloc(*mut *mut c_void, usize, c_uint) -> Status;
        fn cuMemFreeHost(*mut c_void) -> Status;
        fn cuMemcpyHtoDAsync_v2(Address, *const c_void, usize, Handle) -> Status;
        fn cuMemcpyDtoHAsync_v2(*mut c_void, Address, usize, Handle) -> Status;
        fn cuMemsetD8Async(Address, u8, usize, Handle) -> Status;
        fn cuStreamCreate(*mut Handle, c_uint) -> Status;
        fn cuStreamDestroy_v2(Handle) -> Status;
        fn cuStreamSynchronize(Handle) -> Status;
        fn cuStreamWaitEvent(Handle, Handle, c_uint) -> Status;
        fn cuStreamBeginCapture_v2(Handle, c_int) -> Status;
        fn cuStreamEndCapture(Handle, *mut Handle) -> Status;
        fn cuEventCreate(*mut Handle, c_uint) -> Status;
        fn cuEventDestroy_v2(Handle) -> Status;
        fn cuEventRecord(Handle, Handle) -> Status;
        fn cuEventQuery(Handle) -> Status;
        fn cuEventSynchronize(Handle) -> Status;
        fn cuEventElapsedTime(*mut f32, Handle, Handle) -> Status;
        fn cuModuleLoadDataEx(*mut Handle, *const c_void, c_uint, *mut c_int, *mut *mut c_void) -> Status;
        fn cuModuleUnload(Handle) -> Status;
        fn cuModuleGetFunction(*mut Handle, Handle, *const c_char) -> Status;
        fn cuLaunchKernel(
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void,
        ) -> Status;
        fn cuGraphInstantiateWithFlags(*mut Handle, Handle, u64) -> Status;
        fn cuGraphUpload(Handle, Handle) -> Status;
        fn cuGraphDestroy(Handle) -> Status;
        fn cuGraphExecDestroy(Handle) -> Status;
        fn cuGraphLaunch(Handle, Handle) -> Status;
    }
}

/// These numbers' names in the headers.
#[cfg(test)]
pub(crate) const NUMBERS: &[(&str, i64)] = &[
    ("CU_STREAM_NON_BLOCKING", NON_BLOCKING as i64),
    ("CU_EVENT_BLOCKING_SYNC", BLOCKING as i64),
    ("CU_EVENT_DISABLE_TIMING", UNTIMED as i64),
    ("CUDA_ERROR_NOT_READY", NOT_READY as i64),
    ("sizeof(CUdeviceptr)", 8),
];

/// The oldest supported driver.
const NEEDED: Version = Version { major: 12, minor: 0 };

/// The driver, initialized.
pub(crate) struct Driver {
    pub(crate) functions: Functions,
    pub(crate) version: Version,
}

impl Driver {
    /// Loads the driver, once per process.
    ///
    /// # Errors
    /// [`CudaError::NoDriver`] or [`CudaError::DriverTooOld`]; a later call returns the same error.
    pub(crate) fn get() -> Result<&'static Self, CudaError> {
        static DRIVER: OnceLock<Result<Driver, CudaError>> = OnceLock::new();
        DRIVER.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Self, CudaError> {
        let names = ["libcuda.so.1", "libcuda.so"].map(str::to_owned);
        let (library, _) = library::load(&names, &[]).map_err(|reason| CudaError::NoDriver { reason })?;
        let functions = Functions::of(library).map_err(|missing| CudaError::NoDriver {
            reason: library::text(format!("libcuda.so.1 has no {missing}")),
        })?;
        let mut number = 0;
        // SAFETY: `number` is a valid place for the number, and this call needs no prior initialization.
        let status = unsafe { (functions.cuDriverGetVersion)(&mut number) };
        let driver = Self { functions, version: Version::from_number(number) };
        driver.check("cuDriverGetVersion", status)?;
        if driver.version < NEEDED {
            return Err(CudaError::DriverTooOld { found: driver.version, needed: NEEDED });
        }
        // SAFETY: no preconditions; 0 is the only valid value of its flags.
        let status = unsafe { (driver.functions.cuInit)(0) };
        driver.check("cuInit", status).map_err(|error| match error {
            // The driver's package without a device returns this.
            CudaError::Call { name, .. } if name == "CUDA_ERROR_NO_DEVICE" => {
                CudaError::NoDevice { ordinal: 0, devices: Vec::new() }
            }
            error => CudaError::NoDriver { reason: Arc::new(error) },
        })?;
        Ok(driver)
    }

    /// Converts the status that `function` returned.
    pub(crate) fn check(&self, function: &'static str, status: Status) -> Result<(), CudaError> {
        if status == 0 {
            return Ok(());
        }
        let name = self.text(self.functions.cuGetErrorName, status).unwrap_or_else(|| format!("error {status}"));
        let detail = self.text(self.functions.cuGetErrorString, status).unwrap_or_default();
        Err(CudaError::Call { function, name, detail })
    }

    // SAFETY: a type; the call below justifies itself.
    fn text(&self, ask: unsafe extern "C" fn(Status, *mut *const c_char) -> Status, status: Status) -> Option<String> {
        let mut text = std::ptr::null();
        // SAFETY: `text` is a valid place for the address of a string, which the driver owns and never changes.
        let text = unsafe { (ask(status, &mut text) == 0 && !text.is_null()).then(|| CStr::from_ptr(text)) };
        text.map(|text| one_line(&text.to_string_lossy()))
    }

    /// The number of devices.
    pub(crate) fn count(&self) -> Result<usize, CudaError> {
        let mut count = 0;
        // SAFETY: `count` is a valid place for the number.
        self.check("cuDeviceGetCount", unsafe { (self.functions.cuDeviceGetCount)(&mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// The driver's number of a device.
    pub(crate) fn device(&self, ordinal: usize) -> Result<c_int, CudaError> {
        let mut device = 0;
        let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: `device` is a valid place for the number; an ordinal out of range is refused.
        self.check("cuDeviceGet", unsafe { (self.functions.cuDeviceGet)(&mut device, ordinal) })?;
        Ok(device)
    }

    /// A device's name.
    pub(crate) fn name(&self, device: c_int) -> Result<String, CudaError> {
        let mut name = [0_u8; 256];
        // SAFETY: `name` has room for the given number of bytes.
        let status = unsafe { (self.functions.cuDeviceGetName)(name.as_mut_ptr().cast(), 256, device) };
        self.check("cuDeviceGetName", status)?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(one_line(&name.to_string_lossy()))
    }

    /// An attribute of a device, by the attribute's number.
    pub(crate) fn attribute(&self, question: c_int, device: c_int) -> Result<u32, CudaError> {
        let mut answer = 0;
        // SAFETY: `answer` is a valid place for the number.
        let status = unsafe { (self.functions.cuDeviceGetAttribute)(&mut answer, question, device) };
        self.check("cuDeviceGetAttribute", status)?;
        Ok(answer.unsigned_abs())
    }
}
