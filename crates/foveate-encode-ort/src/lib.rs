#![doc = include_str!("../README.md")]

#[cfg(feature = "cuda")]
mod bound;
mod contract;
mod encoder;
#[cfg(feature = "tensorrt")]
mod engines;
mod feed;
mod health;
mod library;
#[cfg(feature = "cuda")]
mod nvidia;
#[cfg(feature = "cuda")]
mod placement;
#[cfg(feature = "cuda")]
mod probe;
mod provider;
mod rows;

pub use encoder::OrtEncoder;

use foveate_core::RegistryError;
use foveate_encode::{EncodeError, Encoder, EncoderBackend, EncoderRegistry, GraphFormat, ModelForm};

/// The name of this backend in the registry.
pub const NAME: &str = "ort";

/// Adds this backend to `registry`.
///
/// # Errors
/// When a backend of the same name is registered already.
pub fn register(registry: &mut EncoderRegistry) -> Result<(), RegistryError> {
    let open = |model: &_, options: &_| -> Result<Box<dyn Encoder>, EncodeError> {
        Ok(Box::new(OrtEncoder::open_any(model, options)?))
    };
    let backend = EncoderBackend::new(NAME, "any ONNX graph, with ONNX Runtime's shared library", open);
    registry.register(backend.taking(&[ModelForm::Graph(GraphFormat::Onnx)]).with_health(health::health))
}
