#![doc = include_str!("../README.md")]

mod encoder;
mod kernel;
mod network;
mod tensors;

pub use encoder::CandleEncoder;
pub use tensors::TensorEncoder;

use foveate_core::{Health, RegistryError};
use foveate_encode::{EncodeError, Encoder, EncoderBackend, EncoderRegistry};

/// The name of this backend in the registry.
pub const NAME: &str = "candle";

/// Adds this backend to `registry`.
///
/// # Errors
/// When a backend of the same name is registered already.
pub fn register(registry: &mut EncoderRegistry) -> Result<(), RegistryError> {
    let open = |model: &_, options: &_| -> Result<Box<dyn Encoder>, EncodeError> {
        Ok(Box::new(CandleEncoder::open(model, options)?))
    };
    let backend = EncoderBackend::new(NAME, "DINOv2 in pure Rust on the CPU (f32)", open);
    registry.register(backend.with_health(|| Health::all_rust().on(["cpu".to_owned()])))
}
