//! CUDA's libraries beside the driver: their search path.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::driver::Driver;
use crate::error::CudaError;
use crate::library::{load, text};

/// Finds a CUDA library, whose files are called `stem` (`libcublasLt.so`). Returns the result of `functions`, and the
/// path the library was loaded as.
///
/// # Errors
/// [`CudaError::Library`], with the paths that were tried and the `remedy`; the errors of finding the driver.
pub(crate) fn find<T>(
    (name, stem, remedy): (&'static str, &str, &'static str),
    functions: impl FnOnce(Library) -> Result<T, &'static str>,
) -> Result<(T, String), CudaError> {
    let driver = Driver::get()?.version.major;
    let (library, path) =
        load(&names(stem, driver), &folders()).map_err(|reason| CudaError::Library { name, reason, remedy })?;
    let functions = functions(library).map_err(|function| CudaError::Library {
        name,
        reason: text(format!("{path} has no {function}")),
        remedy,
    })?;
    Ok((functions, path))
}

/// Loads a CUDA library, whose files are called `stem`, for code that will request it from the system's loader by name:
/// the loader finds a loaded library in whichever folder it lies. Returns the path it was loaded as.
///
/// # Errors
/// [`CudaError::Library`] if it is missing, with the paths that were tried; the errors of
/// [`Device::names`](crate::Device::names).
pub fn preload(name: &'static str, stem: &str) -> Result<String, CudaError> {
    let remedy = "install it with CUDA or from NVIDIA's wheels, and name its lib folder in FOVEATE_CUDA_LIB";
    find((name, stem, remedy), |library| {
        std::mem::forget(library);
        Ok(())
    })
    .map(|((), path)| path)
}

/// The file names of a CUDA library, newest release first. A library does not start on a driver of an older release
/// (`driver`) than its own.
fn names(stem: &str, driver: u32) -> Vec<String> {
    let releases = [13, 12, 11].into_iter().filter(|&release| release <= driver);
    releases.map(|release| format!("{stem}.{release}")).chain([stem.to_owned()]).collect()
}

/// An environment variable; `None` if it is empty.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The folders of CUDA's libraries besides the loader's path: those in `FOVEATE_CUDA_LIB` (separated by colons),
/// `lib64` of `CUDA_HOME` and `CUDA_PATH`, the usual place, and NVIDIA's wheels in the active Python environment.
fn folders() -> Vec<PathBuf> {
    let own = variable("FOVEATE_CUDA_LIB");
    let own = own.iter().flat_map(std::env::split_paths);
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable).map(|home| Path::new(&home).join("lib64"));
    let wheels = variable("VIRTUAL_ENV").map(|root| wheels(Path::new(&root))).unwrap_or_default();
    own.chain(homes).chain([PathBuf::from("/usr/local/cuda/lib64")]).chain(wheels).collect()
}

/// `lib/python*/site-packages/nvidia/*/lib` under `environment`, sorted.
fn wheels(environment: &Path) -> Vec<PathBuf> {
    let pythons = children(&environment.join("lib"));
    let packages = pythons.iter().flat_map(|python| children(&python.join("site-packages/nvidia")));
    packages.map(|package| package.join("lib")).filter(|folder| folder.is_dir()).collect()
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wheels_of_any_python_are_found() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("lib/python3.12/site-packages/nvidia/cublas/lib");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(folder.join("../../no_libraries")).unwrap();
        assert_eq!(wheels(root.path()), [folder]);
        assert!(wheels(Path::new("/nonexistent")).is_empty());
    }
}
