#![doc = include_str!("../README.md")]

mod balance;
#[cfg(feature = "cuda")]
pub mod cuda;
mod encoder;
mod kernel;
mod network;
mod text;

#[cfg(feature = "cuda")]
pub use cuda::CudaEncoder;
pub use encoder::FusedEncoder;
pub use text::FusedTextEncoder;

use foveate_core::{Health, RegistryError};
use foveate_encode::{EncodeError, Encoder, EncoderBackend, EncoderOptions, EncoderRegistry};
use foveate_model::Model;

use crate::kernel::isa::Isa;

/// The name of this backend in the registry.
pub const NAME: &str = "fused";

const ABOUT: &str = if cfg!(feature = "cuda") {
    "vision transformers in kernels of our own: on the CPU (f32, bf16, i8), and on NVIDIA GPUs (f32, f16, bf16)"
} else {
    "vision transformers in pure Rust on the CPU (f32, bf16, i8)"
};

/// Adds this backend to `registry`.
///
/// # Errors
/// If a backend of the same name is registered already.
pub fn register(registry: &mut EncoderRegistry<Model>) -> Result<(), RegistryError> {
    registry.register(EncoderBackend::new(NAME, ABOUT).taking_checkpoints(open).with_health(health))
}

/// Opens the encoder for the requested device.
fn open(model: &Model, options: &EncoderOptions) -> Result<Box<dyn Encoder>, EncodeError> {
    match options.device.as_str() {
        "cpu" => Ok(Box::new(FusedEncoder::new(model, options)?)),
        device if device.starts_with("cuda") => open_cuda(model, options),
        _ => Err(unknown_device(options)),
    }
}

fn unknown_device(options: &EncoderOptions) -> EncodeError {
    let reason = "there is no such kind of device; it is `cpu`, `cuda` or `cuda:N`".into();
    EncodeError::Device { device: options.device.clone(), reason }
}

#[cfg(feature = "cuda")]
fn open_cuda(model: &Model, options: &EncoderOptions) -> Result<Box<dyn Encoder>, EncodeError> {
    Ok(Box::new(CudaEncoder::new(model, options)?))
}

#[cfg(not(feature = "cuda"))]
fn open_cuda(_: &Model, options: &EncoderOptions) -> Result<Box<dyn Encoder>, EncodeError> {
    Err(without_cuda(options))
}

#[cfg(not(feature = "cuda"))]
fn without_cuda(options: &EncoderOptions) -> EncodeError {
    let reason = "built without CUDA: rebuild with `-F cuda`".into();
    EncodeError::Device { device: options.device.clone(), reason }
}

/// The processor's instructions, and with CUDA the state of its libraries and devices.
fn health() -> Health {
    let cpu = match Isa::detect() {
        Ok(isa) => isa.describe(),
        Err(problem) => return Health::broken(problem, "unset the variable"),
    };
    #[cfg(feature = "cuda")]
    let mut health = cuda::health();
    #[cfg(not(feature = "cuda"))]
    let mut health = Health::all_rust().on(["cpu".to_owned()]);
    health.library = Some(health.library.map_or(cpu.clone(), |library| format!("{cpu}; {library}")));
    health
}
