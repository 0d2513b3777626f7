//! Shared libraries loaded at run time, so that programs start without them.

use std::path::PathBuf;
use std::sync::Arc;

use libloading::Library;

use crate::error::{Cause, one_line};

/// A table of a library's functions. Loading looks up every one, so each of them can be called.
macro_rules! functions {
    ($(#[$attribute:meta])* $name:ident { $(fn $function:ident($($argument:ty),* $(,)?) -> $result:ty;)* }) => {
        $(#[$attribute])*
        #[allow(non_snake_case)]
        pub(crate) struct $name {
            // SAFETY: a declaration; each caller justifies its call.
            $(pub(crate) $function: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl $name {
            /// The functions' names and types in C.
            #[cfg(test)]
            pub(crate) fn in_c() -> Vec<(&'static str, String)> {
                use $crate::abi::{InC, function};
                vec![$((
                    stringify!($function),
                    function(&[$(<$argument as InC>::in_c()),*], &<$result as InC>::in_c()),
                )),*]
            }

            /// The functions of `library`, which stays loaded until the process ends because they point into it.
            ///
            /// # Errors
            /// The name of the first function that it lacks.
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

/// Loads the first of `names` that exists: each on the system loader's path, then in each of `folders`. So a newer
/// release in a folder comes before an older one on the path.
///
/// # Errors
/// The loader's error, or the paths that were tried.
pub(crate) fn load(names: &[String], folders: &[PathBuf]) -> Result<(Library, String), Cause> {
    let mut refused = None;
    let mut paths = Vec::new();
    for name in names {
        paths.push(PathBuf::from(name));
        paths.extend(folders.iter().map(|folder| folder.join(name)).filter(|path| path.is_file()));
    }
    for path in paths {
        // SAFETY: NVIDIA's libraries may be loaded at any time; their initializers do not touch our state.
        match unsafe { Library::new(&path) } {
            Ok(library) => return Ok((library, path.display().to_string())),
            // The error of a file that exists but cannot be loaded is more useful than that of a missing one.
            Err(error) if path.is_absolute() => refused = Some(Arc::new(Refused(error)) as Cause),
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or_else(|| {
        let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        let places = if folders.is_empty() { String::new() } else { format!(" and in {}", folders.join(", ")) };
        text(format!("looked for {} on the loader's path{places}", names.join(", ")))
    }))
}

/// A cause without an error beneath it.
pub(crate) fn text(text: String) -> Cause {
    Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(text))
}

/// The system's loader refuses a file.
#[derive(Debug, thiserror::Error)]
#[error("{}", message(.0))]
struct Refused(#[source] libloading::Error);

/// The system loader's message.
fn message(error: &libloading::Error) -> String {
    one_line(&std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_tried_is_said() {
        let names = ["libnothing.so.2".to_owned(), "libnothing.so.1".to_owned()];
        let error = load(&names, &[PathBuf::from("/nonexistent")]).unwrap_err().to_string();
        assert_eq!(error, "looked for libnothing.so.2, libnothing.so.1 on the loader's path and in /nonexistent");
    }

    /// Newer names come first, wherever they lie; the path comes before the folders.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_newer_release_in_a_folder_comes_before_an_older_one_on_the_path() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let is_libc = |path: &&str| path.starts_with('/') && path.ends_with("/libc.so.6");
        let libc = maps.lines().filter_map(|line| line.split_whitespace().last()).find(is_libc).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for name in ["libc.so.6", "libnewer.so.2"] {
            std::os::unix::fs::symlink(libc, folder.path().join(name)).unwrap();
        }
        let found = |names: [&str; 2]| load(&names.map(str::to_owned), &[folder.path().to_owned()]).unwrap().1;
        assert_eq!(found(["libnewer.so.2", "libc.so.6"]), folder.path().join("libnewer.so.2").display().to_string());
        assert_eq!(found(["libnothing.so.2", "libc.so.6"]), "libc.so.6");
    }

    /// A file of that name that is not a library is reported.
    #[test]
    fn a_file_that_cannot_be_loaded_is_named() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("libnothing.so.1"), "text").unwrap();
        let cause = load(&["libnothing.so.1".to_owned()], &[root.path().to_owned()]).unwrap_err();
        let error = cause.to_string();
        assert!(cause.source().is_some_and(|error| error.is::<libloading::Error>()));
        assert!(error.contains("libnothing.so.1") && !error.contains("looked for"), "{error}");
    }
}
