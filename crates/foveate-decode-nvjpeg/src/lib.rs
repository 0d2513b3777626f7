#![doc = include_str!("../README.md")]

mod admission;
mod fault;
mod flight;
mod landing;
mod lane;
mod preprocessor;
mod resample;
mod settings;

use foveate_core::{Health, RegistryError};
use foveate_cuda::nvjpeg::{self, Processors};
use foveate_cuda::{CudaError, Device};
use foveate_preprocess::{PreprocessorBackend, PreprocessorRegistry};

pub use preprocessor::NvjpegPreprocessor;
pub use resample::resample;

/// The backend's name in registries and on the command line.
pub const NAME: &str = "nvjpeg";

/// Adds this backend to `registry`.
///
/// # Errors
/// If the name is taken.
pub fn register(registry: &mut PreprocessorRegistry) -> Result<(), RegistryError> {
    registry.register(PreprocessorBackend::new(NAME, "JPEG with nvJPEG, resized on the GPU", health, |options| {
        Ok(Box::new(NvjpegPreprocessor::open(options)?))
    }))
}

fn health() -> Health {
    let found = nvjpeg::find().and_then(|library| Ok((library, nvjpeg::release()?, Device::names()?)));
    match found {
        Ok((.., names)) if names.is_empty() => {
            Health::broken("there is no CUDA device", "run it on a machine with one")
        }
        Ok((library, release, names)) => {
            let engines: Vec<String> = (0..names.len()).map(engines).collect();
            let library = format!("{library}; {}", engines.join("; "));
            Health::library(library)
                .with_pixels_of(release)
                .on((0..names.len()).map(|ordinal| format!("cuda:{ordinal}")))
        }
        Err(CudaError::Library { name, reason, remedy }) => Health::broken(format!("no {name}: {reason}"), remedy),
        Err(error) => Health::broken(error.to_string(), "decode on the CPU, or install what is named"),
    }
}

/// Which decoding engines the device has, in words.
fn engines(ordinal: usize) -> String {
    let handle = Device::open(ordinal).and_then(|device| nvjpeg::NvjpegHandle::new(&device, Processors::EnginesToo));
    match handle.and_then(|handle| handle.engines()) {
        Ok(Some(count)) => format!("cuda:{ordinal} has {count} JPEG engines"),
        Ok(None) => format!("cuda:{ordinal} has JPEG engines"),
        Err(error) => format!("cuda:{ordinal} without JPEG engines ({error})"),
    }
}
