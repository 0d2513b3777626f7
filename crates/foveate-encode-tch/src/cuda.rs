//! The half of libtorch that knows CUDA, which nothing links to: a program that did would not start on a machine without
//! CUDA. It announces itself to the rest of libtorch when it is loaded.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Name of the library.
const FILE: &str = if cfg!(windows) { "torch_cuda.dll" } else { "libtorch_cuda.so" };

/// Loads the library, once in a process.
///
/// # Errors
/// Why it cannot be had, in one line; the same one when asked again.
pub(crate) fn load() -> Result<(), String> {
    static LOADED: OnceLock<Result<(), String>> = OnceLock::new();
    LOADED.get_or_init(|| open(&location())).clone()
}

/// Beside the half of libtorch that is in use, or wherever the loader finds it.
fn location() -> PathBuf {
    let beside = crate::health::library_folder().map(|folder| folder.join(FILE));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| FILE.into())
}

#[cfg(unix)]
#[allow(unsafe_code)]
fn open(path: &Path) -> Result<(), String> {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    // SAFETY: the library's initializers only register kernels and devices with libtorch's own, thread-safe tables, and
    // it is of the release that this program's libtorch is of, being in its folder. It stays loaded until the
    // process ends, because what it registered points into it.
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

fn one_line(error: &libloading::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
