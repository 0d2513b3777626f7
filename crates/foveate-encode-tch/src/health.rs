//! The libtorch of this machine.

use std::path::Path;

use foveate_core::{Health, Problem};

use crate::library::library_folder;

/// The release that the bindings support; another one does not link.
const RELEASE: &str = "2.13.0";

/// The library that this program runs with, its devices, and CUDA's missing parts on a machine that has a driver for
/// it.
pub(crate) fn health() -> Health {
    let mut health = Health::library(library()).on(["cpu".to_owned()]);
    if !has_nvidia_driver() {
        return health;
    }
    match crate::device::cuda_devices() {
        Ok(count) => health.devices.extend((0..count).map(|index| format!("cuda:{index}"))),
        Err(cause) => {
            let remedy = "the CPU works; for CUDA, install what is named".to_owned();
            health.problem = Some(Problem { cause: format!("CUDA cannot be used: {cause}"), remedy });
        }
    }
    health
}

fn library() -> String {
    format!("{}; bf16 {}", release(), bf16_support())
}

/// The library with the version that was loaded.
pub(crate) fn release() -> String {
    let version = library_folder().and_then(|folder| version(&folder)).unwrap_or_else(|| RELEASE.to_owned());
    format!("libtorch {version}")
}

/// The version written beside `lib`: in `build-version` by libtorch's archives, in `version.py` by Python's wheels.
fn version(library_folder: &Path) -> Option<String> {
    let root = library_folder.parent()?;
    if let Ok(text) = std::fs::read_to_string(root.join("build-version")) {
        return Some(text.trim().to_owned());
    }
    let python = std::fs::read_to_string(root.join("version.py")).ok()?;
    let line = python.lines().find_map(|line| line.strip_prefix("__version__ = "))?;
    Some(line.trim_matches(['\'', '"']).to_owned())
}

/// The bf16 support of this processor. Without either of the instructions, bf16 is slower than f32.
fn bf16_support() -> &'static str {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    if flags.split_whitespace().any(|flag| flag == "amx_bf16") {
        "in AMX"
    } else if flags.split_whitespace().any(|flag| flag == "avx512_bf16") {
        "in AVX-512"
    } else {
        "without instructions for it"
    }
}

fn has_nvidia_driver() -> bool {
    ["/dev/nvidiactl", "/dev/dxg"].iter().any(|path| Path::new(path).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_release_that_is_loaded() {
        let health = health();
        let library = health.library.unwrap();
        assert!(library.starts_with(&format!("libtorch {RELEASE}")), "{library}");
        assert_eq!(health.devices[0], "cpu");
    }

    #[test]
    fn reads_both_kinds_of_version_file() {
        let root = tempfile::tempdir().unwrap();
        let lib = root.path().join("lib");
        assert_eq!(version(&lib), None);
        std::fs::write(root.path().join("version.py"), "__all__ = []\n__version__ = '9.8.7+cu1'\ndebug = False\n")
            .unwrap();
        assert_eq!(version(&lib).unwrap(), "9.8.7+cu1");
        std::fs::write(root.path().join("build-version"), "9.8.6+cpu\n").unwrap();
        assert_eq!(version(&lib).unwrap(), "9.8.6+cpu");
    }
}
