//! Shared libraries that are looked for at run time, so that programs start without them.

use std::path::{Path, PathBuf};

use libloading::Library;

use crate::driver::Driver;
use crate::error::{CudaError, one_line};

/// A table of a library's functions, every one of which is looked up when it is loaded: what is there can be called.
macro_rules! functions {
    ($(#[$attribute:meta])* $name:ident { $(fn $function:ident($($argument:ty),* $(,)?) -> $result:ty;)* }) => {
        $(#[$attribute])*
        #[allow(non_snake_case)]
        pub(crate) struct $name {
            // SAFETY: a declaration; whoever calls one says why that is sound.
            $(pub(crate) $function: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl $name {
            /// The functions of `library`, which stays loaded until the process ends: they point into it.
            ///
            /// # Errors
            /// The name of the first one that it does not have.
            pub(crate) fn of(library: libloading::Library) -> Result<Self, &'static str> {
                let library: &'static libloading::Library = Box::leak(Box::new(library));
                Ok(Self {
                    $($function: {
                        // SAFETY: the type is the one that the library's header declares for this name.
                        let found = unsafe { library.get(concat!(stringify!($function), "\0").as_bytes()) };
                        *found.map_err(|_| stringify!($function))?
                    },)*
                })
            }
        }
    };
}
pub(crate) use functions;

/// Finds a library of CUDA's, whose files are called `stem` (`libcublasLt.so`), and what `functions` makes of it; and the
/// path it was loaded as.
///
/// # Errors
/// [`CudaError::Library`], with what was tried and the `remedy`; those of finding the driver.
pub(crate) fn find<T>(
    (name, stem, remedy): (&'static str, &str, &'static str),
    functions: impl FnOnce(Library) -> Result<T, &'static str>,
) -> Result<(T, String), CudaError> {
    let driver = Driver::get()?.version.major;
    let missing = |reason| CudaError::Library { name, reason, remedy };
    let (library, path) = load(&names(stem, driver), &folders()).map_err(missing)?;
    let functions = functions(library).map_err(|function| missing(format!("{path} has no {function}")))?;
    Ok((functions, path))
}

/// Loads the first of `names` that there is: wherever the system's loader looks, then in each of `folders`.
///
/// # Errors
/// What was tried.
pub(crate) fn load(names: &[String], folders: &[PathBuf]) -> Result<(Library, String), String> {
    let by_name = names.iter().map(PathBuf::from);
    let by_path = folders.iter().flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    let mut refused = None;
    for path in by_name.chain(by_path.filter(|path| path.is_file())) {
        // SAFETY: NVIDIA's libraries may be loaded at any time; their initializers touch nothing of ours.
        match unsafe { Library::new(&path) } {
            Ok(library) => return Ok((library, path.display().to_string())),
            // A file that is there but cannot be loaded says more than one that is not.
            Err(error) if path.is_absolute() => refused = Some(reason(&error)),
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or_else(|| {
        let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        let places = if folders.is_empty() { String::new() } else { format!(" and in {}", folders.join(", ")) };
        format!("looked for {} on the loader's path{places}", names.join(", "))
    }))
}

/// What the system's loader says.
fn reason(error: &libloading::Error) -> String {
    one_line(&std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string))
}

/// The names of a library of CUDA's, the newest release first: it does not start on a driver of an older release (`driver`)
/// than its own.
fn names(stem: &str, driver: u32) -> Vec<String> {
    let releases = [13, 12, 11].into_iter().filter(|&release| release <= driver);
    releases.map(|release| format!("{stem}.{release}")).chain([stem.to_owned()]).collect()
}

/// Where CUDA's libraries may lie besides the loader's path: the folders named in `FOVEATE_CUDA_LIB` (colons between
/// them), `lib64` of `CUDA_HOME` and `CUDA_PATH`, the usual place, and NVIDIA's wheels in the active Python environment.
fn folders() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
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

    #[test]
    fn what_was_tried_is_said() {
        let names = ["libnothing.so.2".to_owned(), "libnothing.so.1".to_owned()];
        let error = load(&names, &[PathBuf::from("/nonexistent")]).unwrap_err();
        assert_eq!(error, "looked for libnothing.so.2, libnothing.so.1 on the loader's path and in /nonexistent");
    }

    /// A file of that name which is no library is not passed over in silence.
    #[test]
    fn a_file_that_cannot_be_loaded_is_named() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("libnothing.so.1"), "text").unwrap();
        let error = load(&["libnothing.so.1".to_owned()], &[root.path().to_owned()]).unwrap_err();
        assert!(error.contains("libnothing.so.1") && !error.contains("looked for"), "{error}");
    }
}
