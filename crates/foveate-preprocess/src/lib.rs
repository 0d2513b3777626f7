#![doc = include_str!("../README.md")]

mod backend;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod cpu;
mod error;
mod opener;
mod options;
mod preprocessor;
mod scale;
mod strips;

pub use backend::{DeviceOptions, PreprocessorBackend, PreprocessorRegistry};
pub use clock::{StageClock, Untimed};
pub use cpu::CpuPreprocessor;
pub use error::{ItemFault, PreprocessError};
pub use opener::{DecoderOpener, Granularity, Opener, PreprocessorOpener, ResizerOpener};
pub use options::{OrientationPolicy, PreprocessOptions};
pub use preprocessor::Preprocessor;
pub use scale::DecodeScale;
