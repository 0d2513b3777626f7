#![doc = include_str!("../README.md")]

mod cuda;
mod device;
mod encoder;
mod health;
mod network;
mod script;

pub use encoder::TchEncoder;

use foveate_core::RegistryError;
use foveate_encode::{EncodeError, Encoder, EncoderBackend, EncoderRegistry, GraphFormat, ModelForm};

/// The name of this backend in the registry.
pub const NAME: &str = "tch";

/// Adds this backend to `registry`.
///
/// # Errors
/// When a backend of the same name is registered already.
pub fn register(registry: &mut EncoderRegistry) -> Result<(), RegistryError> {
    let open = |model: &_, options: &_| -> Result<Box<dyn Encoder>, EncodeError> {
        Ok(Box::new(TchEncoder::open(model, options)?))
    };
    let backend =
        EncoderBackend::new(NAME, "DINOv2 and TorchScript files through libtorch (f32, bf16, f16; cpu, cuda)", open)
            .taking(&[ModelForm::Dinov2, ModelForm::Graph(GraphFormat::TorchScript)])
            .with_health(health::health);
    registry.register(backend)
}
