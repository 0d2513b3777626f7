#![doc = include_str!("../README.md")]

mod device;
mod encoder;
mod network;

pub use encoder::CandleEncoder;

use foveate_core::RegistryError;
use foveate_encode::{EncoderBackend, EncoderRegistry};
use foveate_model::Model;

/// The name of this backend in the registry.
pub const NAME: &str = "candle";

const ABOUT: &str = if cfg!(feature = "cuda") {
    "vision transformers in candle's tensor operations: on the CPU (f32), and on NVIDIA GPUs (f32, f16, bf16)"
} else {
    "vision transformers in candle's tensor operations on the CPU (f32)"
};

/// Adds this backend to `registry`.
///
/// # Errors
/// If a backend of the same name is registered already.
pub fn register(registry: &mut EncoderRegistry<Model>) -> Result<(), RegistryError> {
    let backend = EncoderBackend::new(NAME, ABOUT)
        .taking_checkpoints(|model, options| Ok(Box::new(CandleEncoder::new(model, options)?)));
    registry.register(backend.with_health(device::health))
}
