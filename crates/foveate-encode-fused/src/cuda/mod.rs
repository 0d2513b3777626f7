//! The forward on an NVIDIA GPU.
//!
//! Per batch, from raw pixels: patches (centred by 128), their product, tokens; per block LayerNorm, one product for
//! queries, keys and values, attention that keeps its scores on the chip, its output added into the residual stream,
//! LayerNorm, the MLP likewise; at last LayerNorm and pooling in one. Products are cuBLASLt's, with the bias and the residual
//! in the product itself; the rest are kernels of our own (`kernels/forward.cu`). Sums are f32 in every precision.
//! Normalization, LayerScale and biases are folded into the weights. No memory is taken and nothing waits per batch; what
//! lies between the first and the last kernel is one graph per batch size.

mod clock;
mod encoder;
mod geometry;
#[allow(unsafe_code)]
mod kernels;
mod network;
mod settings;
mod weights;

pub use encoder::CudaEncoder;

use foveate_core::Health;
use foveate_cuda::{CudaError, blaslt};
use foveate_encode::EncodeError;

/// What a failing device means while an encoder is in use.
fn fault(error: CudaError) -> EncodeError {
    EncodeError::Engine(error.into())
}

/// What it means while one is opened.
fn unavailable(device: &str, error: CudaError) -> EncodeError {
    match error {
        CudaError::OutOfMemory { .. } => EncodeError::Engine(format!("{error}; a smaller batch takes less").into()),
        error => EncodeError::Device { device: device.to_owned(), reason: error.into() },
    }
}

/// The CPU, and the devices there are.
pub(crate) fn health() -> Health {
    foveate_cuda::health(blaslt::find)
}
