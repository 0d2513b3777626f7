use std::collections::BTreeMap;

use foveate_core::{Health, Registry, known_settings, named_backend};

use crate::{CpuPreprocessor, PreprocessError, PreprocessOptions, Preprocessor};

/// Settings for opening a device's preprocessor.
pub struct DeviceOptions {
    /// The device's name: `cuda:0`, ….
    pub device: String,
    /// The way in which an image becomes the encoder's input.
    pub options: PreprocessOptions,
    /// Prepares the images that the device cannot handle.
    pub fallback: CpuPreprocessor,
    /// Settings that only the backend understands (`backend` of `nvjpeg`), by name; see [`Self::settings`].
    pub settings: BTreeMap<String, String>,
}

impl DeviceOptions {
    /// Returns the settings, after checking that every name is in `known`.
    ///
    /// # Errors
    /// [`PreprocessError::Unsupported`], which names the unknown setting and lists the known ones.
    pub fn settings(&self, known: &[&str]) -> Result<&BTreeMap<String, String>, PreprocessError> {
        known_settings(&self.settings, known).map_err(PreprocessError::Unsupported)
    }
}

type Open = dyn Fn(DeviceOptions) -> Result<Box<dyn Preprocessor>, PreprocessError> + Send + Sync;

/// A named way to prepare whole batches on a device.
pub struct PreprocessorBackend {
    name: &'static str,
    about: &'static str,
    open: Box<Open>,
    health: fn() -> Health,
}

impl PreprocessorBackend {
    /// A backend called `name`; `open` makes one preprocessor, for one thread.
    pub fn new<F>(name: &'static str, about: &'static str, health: fn() -> Health, open: F) -> Self
    where
        F: Fn(DeviceOptions) -> Result<Box<dyn Preprocessor>, PreprocessError> + Send + Sync + 'static,
    {
        Self { name, about, open: Box::new(open), health }
    }

    /// Makes a preprocessor for one thread.
    ///
    /// # Errors
    /// If the device or its library is missing, or does not support the options.
    pub fn open(&self, options: DeviceOptions) -> Result<Box<dyn Preprocessor>, PreprocessError> {
        (self.open)(options)
    }
}

named_backend!(PreprocessorBackend);

/// The device preprocessors compiled into a program.
pub type PreprocessorRegistry = Registry<PreprocessorBackend>;
