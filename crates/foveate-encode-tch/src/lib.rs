#![doc = include_str!("../README.md")]

mod cuda;
mod device;
mod encoder;
mod health;
mod library;
mod network;
mod script;

pub use encoder::TchEncoder;

use foveate_core::RegistryError;
use foveate_encode::{EncoderBackend, EncoderRegistry, GraphFormat};
use foveate_model::Model;

/// The name of this backend in the registry.
pub const NAME: &str = "tch";

/// Adds this backend to `registry`.
///
/// # Errors
/// If a backend of the same name is registered already.
pub fn register(registry: &mut EncoderRegistry<Model>) -> Result<(), RegistryError> {
    let about = "vision transformers and TorchScript files through libtorch (f32, bf16, f16; cpu, cuda)";
    let backend = EncoderBackend::new(NAME, about)
        .taking_checkpoints(|model, options| Ok(Box::new(TchEncoder::new(model, options)?)))
        .taking_graphs(GraphFormat::TorchScript, |graph, options| {
            Ok(Box::new(TchEncoder::from_torchscript(graph, options)?))
        });
    registry.register(backend.with_health(health::health))
}
