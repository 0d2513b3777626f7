//! libtorch's CUDA half. No program links to it, because such a program would not start on a machine without CUDA.
//! Loading it registers it with the rest of libtorch.

use std::error::Error as _;
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use foveate_encode::EncodeError;
use tch::{Device, Kind, TchError, Tensor};

/// Name of the library.
const FILE: &str = if cfg!(windows) { "torch_cuda.dll" } else { "libtorch_cuda.so" };

/// Loads the library, once per process.
///
/// # Errors
/// The reason why it cannot be loaded, in one line; a later call returns the same error.
pub(crate) fn load() -> Result<(), String> {
    static LOADED: OnceLock<Result<(), String>> = OnceLock::new();
    LOADED.get_or_init(|| open(&location())).clone()
}

/// Beside the libtorch half in use, or wherever the loader finds it.
fn location() -> PathBuf {
    let beside = crate::library::library_folder().map(|folder| folder.join(FILE));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| FILE.into())
}

#[cfg(unix)]
#[allow(unsafe_code)]
fn open(path: &Path) -> Result<(), String> {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    // SAFETY: the library's initializers only register kernels and devices with libtorch's own, thread-safe tables. It
    // is of the same release as this program's libtorch, because it is in its folder. It stays loaded until the process
    // ends, because what it registered points into it.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    library.map(std::mem::forget).map_err(|error| one_line(&error))
}

#[cfg(not(unix))]
#[allow(unsafe_code)]
fn open(path: &Path) -> Result<(), String> {
    // SAFETY: as on Unix.
    let library = unsafe { libloading::Library::new(path) };
    library.map(std::mem::forget).map_err(|error| one_line(&error))
}

/// Batches in pinned memory, from which the device copies directly.
#[derive(Default)]
pub(crate) struct PinnedStaging(Option<Tensor>);

impl PinnedStaging {
    /// Copies `samples` to `device` in `shape`, which holds as many. The copy is complete when [`wait_for`] returns,
    /// and the next call must come after that.
    #[allow(unsafe_code)]
    pub(crate) fn upload(&mut self, samples: &[u8], shape: &[i64], device: Device) -> Result<Tensor, TchError> {
        let len = samples.len();
        let pinned = match self.0.take().filter(|pinned| pinned.numel() >= len) {
            Some(pinned) => pinned,
            None => Tensor::f_empty([len as i64], (Kind::Uint8, Device::Cpu))?.f_internal_pin_memory(device)?,
        };
        let pinned = self.0.insert(pinned);
        // SAFETY: the tensor is on the host, contiguous, at least this many bytes long, and exclusively borrowed.
        unsafe { std::ptr::copy_nonoverlapping(samples.as_ptr(), pinned.data_ptr().cast(), len) };
        let batch = pinned.f_narrow(0, 0, len as i64)?.f_view(shape)?;
        batch.f_to_device_(device, Kind::Uint8, true, false)
    }
}

/// Waits until a device has computed `tensor`. A device runs all threads' work in order, so once one value has reached
/// the host, all are complete. (libtorch's own way to wait panics if the device failed.)
pub(crate) fn wait_for(tensor: &Tensor) -> Result<(), TchError> {
    tensor.f_reshape([-1])?.f_narrow(0, 0, 1)?.f_to(Device::Cpu).map(drop)
}

/// The process's switch for TF32, held by the encoders on CUDA devices: f32 products round their factors to 10 bits, or
/// not. libtorch's default is off for products and on for convolutions.
pub(crate) struct Tf32(());

/// The value that the open encoders need, and their number.
static TF32: Mutex<(bool, usize)> = Mutex::new((false, 0));

impl Tf32 {
    /// Sets the switch, unless another encoder needs it as it is.
    ///
    /// # Errors
    /// [`EncodeError::Unsupported`] if one does.
    pub(crate) fn claim(wanted: bool) -> Result<Self, EncodeError> {
        let mut held = TF32.lock().unwrap_or_else(PoisonError::into_inner);
        if held.1 > 0 && held.0 != wanted {
            let [wanted, held] = [wanted, held.0].map(|on| if on { "on" } else { "off" });
            return Err(EncodeError::Unsupported(format!(
                "tf32={wanted} beside an encoder with tf32={held}: libtorch has one switch for the whole process"
            )));
        }
        set_tf32(wanted).map_err(|error| EncodeError::Engine(error.into()))?;
        *held = (wanted, held.1 + 1);
        Ok(Self(()))
    }
}

impl Drop for Tf32 {
    fn drop(&mut self) {
        TF32.lock().unwrap_or_else(PoisonError::into_inner).1 -= 1;
    }
}

/// Sets the switch. The bindings leave these functions of libtorch out, so they are called by their mangled C++ names
/// in the one release that the bindings support.
#[cfg(unix)]
#[allow(unsafe_code)]
fn set_tf32(on: bool) -> Result<(), String> {
    let libtorch = libloading::os::unix::Library::this();
    // SAFETY: `at::globalContext()`, which returns a reference, and two methods of it, `void (bool)`, in libtorch 2.13.
    unsafe {
        let context = libtorch.get::<extern "C" fn() -> *mut c_void>(b"_ZN2at13globalContextEv\0");
        let context = context.map_err(missing)?();
        for name in [&b"_ZN2at7Context18setAllowTF32CuBLASEb\0"[..], b"_ZN2at7Context17setAllowTF32CuDNNEb\0"] {
            libtorch.get::<extern "C" fn(*mut c_void, bool)>(name).map_err(missing)?(context, on);
        }
    }
    Ok(())
}

/// Keeps libtorch's default.
#[cfg(not(unix))]
fn set_tf32(on: bool) -> Result<(), String> {
    if on { Err("there is no switch for TF32 on this platform".to_owned()) } else { Ok(()) }
}

/// The message of the system's loader, if there is one; the error's own message names only the attempted call.
fn missing(error: libloading::Error) -> String {
    format!("libtorch's switch for TF32: {}", one_line(&error))
}

fn one_line(error: &libloading::Error) -> String {
    let words = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    words.lines().next().unwrap_or_default().to_owned()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// libtorch's answer whether products may use TF32.
    #[allow(unsafe_code, clippy::unwrap_used)]
    fn is_on() -> bool {
        let libtorch = libloading::os::unix::Library::this();
        // SAFETY: as in `set_tf32`; `bool () const`.
        unsafe {
            let context = libtorch.get::<extern "C" fn() -> *mut c_void>(b"_ZN2at13globalContextEv\0").unwrap()();
            let name = b"_ZNK2at7Context15allowTF32CuBLASEv\0";
            libtorch.get::<extern "C" fn(*const c_void) -> bool>(name).unwrap()(context)
        }
    }

    #[test]
    fn tf32_is_one_switch_for_all_that_hold_it() {
        let on = Tf32::claim(true).unwrap();
        assert!(is_on());
        let too = Tf32::claim(true).unwrap();
        drop(on);
        let refused = Tf32::claim(false).err().unwrap().to_string();
        assert!(refused.contains("tf32=off beside an encoder with tf32=on"), "{refused}");
        assert!(is_on());
        drop(too);
        let off = Tf32::claim(false).unwrap();
        assert!(!is_on());
        drop(off);
    }

    #[test]
    fn what_was_waited_for_is_there() {
        let tensor = Tensor::f_from_slice(&[1.0f32, 2.0, 3.0, 4.0]).unwrap();
        wait_for(&tensor.f_view([2, 2]).unwrap().f_transpose(0, 1).unwrap()).unwrap();
    }

    /// Pinned memory needs a driver: without one, libtorch returns an error and does not panic.
    #[test]
    fn batches_are_staged_where_there_is_a_device() {
        let there = load().is_ok() && tch::Cuda::is_available();
        let mut staging = PinnedStaging::default();
        for samples in [[1u8, 2, 3, 4].as_slice(), &[5, 6]] {
            let uploaded = staging.upload(samples, &[2, samples.len() as i64 / 2], Device::Cuda(0));
            assert_eq!(uploaded.is_ok(), there);
            if let Ok(tensor) = uploaded {
                wait_for(&tensor).unwrap();
                let host = tensor.f_to(Device::Cpu).unwrap().f_reshape([-1]).unwrap();
                assert_eq!(Vec::<u8>::try_from(&host).unwrap(), samples);
            }
        }
    }
}
