use std::ffi::{CString, c_int, c_void};
use std::sync::Arc;

use flate2::read::GzDecoder;

use crate::buffer::Buffer;
use crate::capture::{Lazy, no_capture};
use crate::device::Device;
use crate::driver::Handle;
use crate::error::{CudaError, one_line};
use crate::stream::Stream;

/// Kernels, compiled for a device.
#[derive(Clone, Debug)]
pub struct Module(Arc<Loaded>);

#[derive(Debug)]
struct Loaded {
    device: Device,
    handle: Handle,
}

/// `CUjit_option`: a buffer for the compiler's messages, and its size.
const ERROR_LOG: c_int = 5;
const ERROR_LOG_BYTES: c_int = 6;

/// These numbers' names in the headers.
#[cfg(test)]
pub(crate) const NUMBERS: &[(&str, i64)] =
    &[("CU_JIT_ERROR_LOG_BUFFER", ERROR_LOG as i64), ("CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES", ERROR_LOG_BYTES as i64)];

impl Module {
    /// Compiles gzipped PTX for the device; see [`Self::from_ptx`].
    ///
    /// # Errors
    /// [`CudaError::Kernels`] if it cannot be unpacked, or with the compiler's message.
    pub fn from_gzip(device: &Device, gzip: &[u8]) -> Result<Self, CudaError> {
        let ptx = std::io::read_to_string(GzDecoder::new(gzip));
        Self::from_ptx(device, &ptx.map_err(|error| CudaError::Kernels(format!("they cannot be unpacked: {error}")))?)
    }

    /// Compiles PTX for the device. The driver caches the result on disk, so later compilations take no time.
    ///
    /// # Errors
    /// [`CudaError::Kernels`] with the compiler's message.
    pub fn from_ptx(device: &Device, ptx: &str) -> Result<Self, CudaError> {
        let text = CString::new(ptx).map_err(|_| CudaError::Kernels("the PTX has a zero in it".to_owned()))?;
        let mut log = [0_u8; 4096];
        let mut options = [ERROR_LOG, ERROR_LOG_BYTES];
        // A number is passed in place of a pointer.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(log.len())];
        let mut handle = Handle::NULL;
        let no_capture = no_capture();
        // SAFETY: the text ends with a zero; the log has room for the given number of bytes; there are two options, and
        // as many values; `handle` is a valid place for the handle.
        let loaded = device.call("cuModuleLoadDataEx", |driver| unsafe {
            let options = options.as_mut_ptr();
            let values = values.as_mut_ptr();
            (driver.cuModuleLoadDataEx)(&mut handle, text.as_ptr().cast(), 2, options, values)
        });
        drop(no_capture);
        loaded.map_err(|error| {
            let said = log.split(|&byte| byte == 0).next().unwrap_or_default();
            let said = one_line(&String::from_utf8_lossy(said));
            let capability = device.compute_capability();
            let place = format!("{} (compute capability {}.{})", device.name(), capability.0, capability.1);
            CudaError::Kernels(one_line(&format!("{place} does not take them: {error} {said}")))
        })?;
        Ok(Self(Arc::new(Loaded { device: device.clone(), handle })))
    }

    /// Returns the kernel called `name`.
    ///
    /// # Errors
    /// [`CudaError::Kernels`] if there is none.
    pub fn kernel(&self, name: &str) -> Result<Kernel, CudaError> {
        let text = CString::new(name).map_err(|error| CudaError::Kernels(format!("no '{name}': {error}")))?;
        let mut handle = Handle::NULL;
        let _no_capture = no_capture();
        // SAFETY: `handle` is a valid place for the handle, the module is loaded, and the name ends with a zero.
        let found = self.0.device.call("cuModuleGetFunction", |driver| unsafe {
            (driver.cuModuleGetFunction)(&mut handle, self.0.handle, text.as_ptr())
        });
        found.map_err(|error| CudaError::Kernels(format!("no '{name}': {error}")))?;
        Ok(Kernel { module: Arc::clone(&self.0), handle, code: Arc::default() })
    }
}

impl Drop for Loaded {
    /// Ignores errors: they mean that the context is lost, and its code with it.
    fn drop(&mut self) {
        // SAFETY: the module is owned, no kernel of it is left, and no work that the device was given runs one any
        // more.
        let _ = self.device.after_all_work("cuModuleUnload", |driver| unsafe { (driver.cuModuleUnload)(self.handle) });
    }
}

/// A kernel of a [`Module`].
#[derive(Clone, Debug)]
pub struct Kernel {
    module: Arc<Loaded>,
    handle: Handle,
    code: Arc<Lazy>,
}

/// A kernel's argument.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// A pointer to the buffer's start.
    Buffer(&'a Buffer),
    /// A null pointer.
    Null,
    /// `int`.
    I32(i32),
    /// `long long`.
    I64(i64),
    /// `float`.
    F32(f32),
}

/// The most arguments of a kernel.
const ARGUMENTS: usize = 12;

impl Kernel {
    /// Enqueues a launch of `grid` blocks of `block` threads on `stream`. Returns at once.
    ///
    /// # Safety
    /// The arguments must match the kernel's parameters in number, order and type, and no block of the grid may access
    /// memory beyond the buffers among them.
    ///
    /// # Errors
    /// [`CudaError::Misfit`] for more than 12 arguments or a buffer of another device; the driver's own errors
    /// otherwise.
    // SAFETY: the section above states the caller's obligations.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        grid: [u32; 3],
        block: u32,
        args: &[Arg<'_>],
    ) -> Result<(), CudaError> {
        let mut values = [0_u64; ARGUMENTS];
        let mut pointers = [std::ptr::null_mut(); ARGUMENTS];
        if args.len() > ARGUMENTS {
            return Err(CudaError::Misfit(format!("{} arguments for a kernel", args.len())));
        }
        for ((arg, value), pointer) in args.iter().zip(&mut values).zip(&mut pointers) {
            *value = self.bits(stream, arg)?;
            *pointer = std::ptr::from_mut(value).cast();
        }
        stream.need(&self.module);
        self.code.using(|| {
            // SAFETY: every pointer leads to a value of the argument's size or larger, whose first bytes are the
            // argument's (devices and their hosts are little-endian); the caller guarantees the rest. The memory that
            // the kernel uses is freed only afterwards.
            self.module.device.call("cuLaunchKernel", |driver| unsafe {
                let [x, y, z] = grid;
                let none = std::ptr::null_mut();
                let pointers = pointers.as_mut_ptr();
                (driver.cuLaunchKernel)(self.handle, x, y, z, block, 1, 1, 0, stream.handle(), pointers, none)
            })
        })
    }

    fn bits(&self, stream: &Stream, arg: &Arg<'_>) -> Result<u64, CudaError> {
        Ok(match *arg {
            Arg::Buffer(buffer) => {
                if *buffer.device() != self.module.device {
                    return Err(CudaError::Misfit("a buffer of another device".to_owned()));
                }
                stream.need(buffer.allocation());
                buffer.address()
            }
            Arg::Null => 0,
            Arg::I32(value) => u64::from(value.cast_unsigned()),
            Arg::I64(value) => value.cast_unsigned(),
            Arg::F32(value) => u64::from(value.to_bits()),
        })
    }
}
