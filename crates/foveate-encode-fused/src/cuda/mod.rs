//! The forward on an NVIDIA GPU.
//!
//! Steps of a batch, from raw pixels:
//!
//! 1. patches (centred by 128), their product, tokens;
//! 2. per block: LayerNorm, one product for queries, keys and values, attention that keeps its scores on the chip, and
//!    its output added to the residual stream; then LayerNorm and the MLP likewise;
//! 3. the last LayerNorm and pooling in one kernel.
//!
//! cuBLASLt computes the products, with the bias and the residual in the product itself. The rest are our own kernels
//! (`kernels/forward.cu`). Sums are f32 in every precision. Normalization, LayerScale and biases are folded into the
//! weights. A batch neither allocates memory nor waits. The work between the first and the last kernel is one graph per
//! batch size.

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

/// Converts a device's error while an encoder is in use.
fn fault(error: CudaError) -> EncodeError {
    EncodeError::Engine(error.into())
}

/// Converts a device's error while an encoder is opened.
fn unavailable(device: &str, error: CudaError) -> EncodeError {
    match error {
        CudaError::OutOfMemory { .. } => EncodeError::Engine(format!("{error}; a smaller batch takes less").into()),
        error => EncodeError::Device { device: device.to_owned(), reason: error.into() },
    }
}

/// The CPU, and the available devices.
pub(crate) fn health() -> Health {
    foveate_cuda::health(blaslt::find)
}
