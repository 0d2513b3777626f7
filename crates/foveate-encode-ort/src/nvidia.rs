//! NVIDIA's libraries, loaded before a provider requests them. A library whose name is already loaded is not searched
//! again, so the system's loader needs no configuration.

use std::path::{Path, PathBuf};
use std::sync::Once;

use ort::ep::cuda::{CUDA_DYLIBS, CUDNN_DYLIBS};
use ort::util::preload_dylib;

use crate::library::OrtLibrary;

/// Folders of NVIDIA's libraries, separated by colons; `foveate-cuda` searches them too.
pub(crate) const VARIABLE: &str = "FOVEATE_CUDA_LIB";

const TENSORRT: [&str; 3] = ["libnvinfer.so.10", "libnvinfer_plugin.so.10", "libnvonnxparser.so.10"];

/// Loads the libraries that are found, once per process. The provider that needs a missing one names it.
pub(crate) fn preload(library: &OrtLibrary) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let variable = std::env::var_os(VARIABLE).unwrap_or_default();
        let named = std::env::split_paths(&variable).filter(|folder| !folder.as_os_str().is_empty());
        let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
        let toolkits = toolkits.chain(["/usr/local/cuda".into()]).map(|toolkit| toolkit.join("lib64"));
        let beside = site_packages(&library.path).map(|folder| beside(&folder)).unwrap_or_default();
        // The empty path leaves the search to the system's loader.
        let folders: Vec<PathBuf> = named.chain(beside).chain([PathBuf::new()]).chain(toolkits).collect();
        for name in [CUDA_DYLIBS, CUDNN_DYLIBS, &TENSORRT].concat() {
            let _found = folders.iter().any(|folder| preload_dylib(folder.join(name)).is_ok());
        }
    });
}

/// The folder of Python packages in which `library` is `onnxruntime/capi/libonnxruntime.so.*`.
fn site_packages(library: &Path) -> Option<PathBuf> {
    let capi = library.canonicalize().ok()?.parent()?.to_owned();
    let is_package = capi.ends_with("onnxruntime/capi");
    capi.ancestors().nth(2).filter(|_| is_package).map(Path::to_owned)
}

/// The library folders of NVIDIA's packages, sorted.
fn beside(site_packages: &Path) -> Vec<PathBuf> {
    let packages = std::fs::read_dir(site_packages.join("nvidia")).into_iter().flatten();
    let mut folders: Vec<PathBuf> = packages.filter_map(|entry| Some(entry.ok()?.path().join("lib"))).collect();
    folders.sort();
    folders.push(site_packages.join("tensorrt_libs"));
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_beside_the_library_are_found() {
        let site = tempfile::tempdir().unwrap();
        let site = site.path().canonicalize().unwrap();
        for folder in ["onnxruntime/capi", "nvidia/cudnn/lib", "nvidia/cu13/lib"] {
            std::fs::create_dir_all(site.join(folder)).unwrap();
        }
        let library = site.join("onnxruntime/capi/libonnxruntime.so.1.31.1");
        assert_eq!(site_packages(&library), None);
        std::fs::write(&library, "").unwrap();
        assert_eq!(site_packages(&library), Some(site.clone()));
        let folders = ["nvidia/cu13/lib", "nvidia/cudnn/lib", "tensorrt_libs"].map(|folder| site.join(folder));
        assert_eq!(beside(&site), folders);
        let alone = site.join("libonnxruntime.so");
        std::fs::write(&alone, "").unwrap();
        assert_eq!(site_packages(&alone), None);
    }
}
