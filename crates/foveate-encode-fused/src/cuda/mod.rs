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

use foveate_core::{Health, Problem};
use foveate_cuda::{CudaError, Device, blaslt};
use foveate_encode::EncodeError;

/// The number of the device that `name` (`cuda`, `cuda:1`) asks for; `None` when it asks for something else.
pub(crate) fn ordinal(name: &str) -> Option<usize> {
    match name.strip_prefix("cuda")? {
        "" => Some(0),
        rest => rest.strip_prefix(':')?.parse().ok(),
    }
}

/// What a failing device means while an encoder is in use.
fn fault(error: CudaError) -> EncodeError {
    EncodeError::Engine(error.to_string())
}

/// What it means while one is opened.
fn unavailable(device: &str, error: CudaError) -> EncodeError {
    match error {
        CudaError::OutOfMemory { .. } => EncodeError::Engine(format!("{error}; a smaller batch takes less")),
        error => EncodeError::Device { device: device.to_owned(), reason: error.to_string() },
    }
}

/// The CPU, and the devices there are; a problem when there are some that cannot be used.
pub(crate) fn health() -> Health {
    let cpu = Health::all_rust().on(["cpu".to_owned()]);
    // Without a driver or a device, the CPU is all that anybody expects.
    let Ok(names) = Device::names() else { return cpu };
    if names.is_empty() {
        return cpu;
    }
    match blaslt::find() {
        Ok(library) => {
            let devices = (0..names.len()).map(|ordinal| format!("cuda:{ordinal}"));
            Health::library(library).on(cpu.devices.into_iter().chain(devices))
        }
        Err(error) => {
            let remedy = "the CPU works; for CUDA, install what is named".to_owned();
            Health { problem: Some(Problem { cause: format!("CUDA cannot be used: {error}"), remedy }), ..cpu }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_numbered() {
        assert_eq!(ordinal("cuda"), Some(0));
        assert_eq!(ordinal("cuda:3"), Some(3));
        for other in ["cpu", "cuda:", "cuda:x", "cuda3", "gpu"] {
            assert_eq!(ordinal(other), None, "{other}");
        }
    }
}
