#![doc = include_str!("../README.md")]

#[cfg(feature = "cuda")]
mod binding;
#[cfg(feature = "cuda")]
#[doc(hidden)]
pub mod checks;
mod contract;
mod encoder;
#[cfg(feature = "tensorrt")]
mod engines;
mod error;
mod feed;
mod files;
mod health;
mod library;
#[cfg(feature = "cuda")]
mod nvidia;
#[cfg(feature = "cuda")]
mod placement;
mod plan;
#[cfg(feature = "cuda")]
mod probe;
mod provider;
mod rows;

pub use encoder::OrtEncoder;

use foveate_core::RegistryError;
use foveate_encode::{EncoderBackend, EncoderRegistry, GraphFormat};

/// The name of this backend in the registry.
pub const NAME: &str = "ort";

/// Adds this backend to `registry`. It takes no checkpoints, so their type does not matter.
///
/// # Errors
/// If a backend of the same name is registered already.
pub fn register<C>(registry: &mut EncoderRegistry<C>) -> Result<(), RegistryError> {
    let backend = EncoderBackend::new(NAME, "any ONNX graph, with ONNX Runtime's shared library");
    let backend =
        backend.taking_graphs(GraphFormat::Onnx, |graph, options| Ok(Box::new(OrtEncoder::open(graph, options)?)));
    registry.register(backend.with_health(health::health))
}
