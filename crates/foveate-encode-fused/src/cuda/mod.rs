//! The forward on an NVIDIA GPU.
//!
//! Steps of a batch, from raw pixels:
//!
//! 1. patches (centred by 128), their product, tokens, and their LayerNorm if the model has one;
//! 2. per block: LayerNorm, one product for queries, keys and values, their rotation if the model has one, attention
//!    that keeps its scores on the chip, and its output added to the residual stream; then LayerNorm and the MLP
//!    likewise. If class tokens alone are pooled, the last block continues behind its attention with these;
//! 3. the last LayerNorm and pooling in one kernel; or the model's head, whose attention pooling is one more block.
//!
//! cuBLASLt computes the products, with the bias and the residual in the product itself. The rest are our own kernels
//! (`kernels/forward.cu`). Sums are f32 in every precision. Normalization, LayerScale and biases are folded into the
//! weights. A batch neither allocates memory nor waits. The work between the first and the last kernel is one graph per
//! batch size. Rows and heads are padded with zeros to the widths that kernels and products read.
//!
//! Texts take the same blocks. Their first kernel looks words up, and their tokens lie one behind the other, so that
//! attention reads where each text begins. Products are padded to a power of two rows.

mod clock;
mod encoder;
mod geometry;
#[allow(unsafe_code)]
mod kernels;
mod network;
mod settings;
mod text;
mod weights;

pub use encoder::CudaEncoder;
pub(crate) use text::CudaTexts;

use std::time::Instant;

use foveate_core::{Health, SampleType};
use foveate_cuda::blaslt::{self, Element};
use foveate_cuda::{CudaError, Device};
use foveate_encode::EncodeError;

use kernels::CudaKernels;

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

/// The CPU, and the available devices, of which the first compiles the kernels: who asks for the health learns that a
/// driver does not take them, and how long a start takes.
pub(crate) fn health() -> Health {
    foveate_cuda::health(|| Ok(format!("{}; {}", blaslt::find()?, start(&Device::open(0)?)?)))
}

/// Measures the start of the kernels, and says where the driver keeps the compiled ones for the next start.
fn start(device: &Device) -> Result<String, CudaError> {
    let begun = Instant::now();
    CudaKernels::new(device, Element::F16, SampleType::U8)?;
    let seconds = begun.elapsed().as_secs_f64();
    let kept = kept(|name| std::env::var(name).ok());
    Ok(format!("kernels for f16 compiled or read in {seconds:.1} s ({kept})"))
}

/// The folder in which the driver keeps compiled kernels, by its `variable`s.
fn kept(variable: impl Fn(&str) -> Option<String>) -> String {
    if variable("CUDA_CACHE_DISABLE").is_some_and(|value| value == "1") {
        return "compiled at every start, because CUDA_CACHE_DISABLE=1".to_owned();
    }
    let folder = variable("CUDA_CACHE_PATH").unwrap_or_else(|| "~/.nv/ComputeCache".to_owned());
    format!("the driver keeps them in {folder}")
}

#[cfg(test)]
mod tests {
    use super::kept;

    #[test]
    fn the_drivers_variables_say_where_kernels_are_kept() {
        let with = |given: &'static [(&str, &str)]| {
            kept(|name| given.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(with(&[]), "the driver keeps them in ~/.nv/ComputeCache");
        assert_eq!(with(&[("CUDA_CACHE_PATH", "/kept")]), "the driver keeps them in /kept");
        assert!(with(&[("CUDA_CACHE_DISABLE", "1")]).starts_with("compiled at every start"));
    }
}
