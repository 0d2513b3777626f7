//! The device of a network.

use foveate_encode::EncodeError;
use tch::{Cuda, Device};

/// Returns the device called `name`, after checking that it works.
///
/// # Errors
/// [`EncodeError::Device`], naming what is missing; there is no fallback to another device.
pub(crate) fn find(name: &str) -> Result<Device, EncodeError> {
    if name == "cpu" {
        return Ok(Device::Cpu);
    }
    let reason = match name.strip_prefix("cuda:").and_then(|index| index.parse().ok()) {
        None => "libtorch runs on `cpu` and `cuda:N` here".to_owned(),
        Some(index) => match cuda_devices() {
            Ok(count) if index < count => return Ok(Device::Cuda(index)),
            Ok(count) => format!("libtorch sees {count} CUDA device(s), the first being cuda:0"),
            Err(reason) => reason,
        },
    };
    Err(EncodeError::Device { device: name.to_owned(), reason: reason.into() })
}

/// The number of CUDA devices, at least one.
///
/// # Errors
/// The reason why there are none.
pub(crate) fn cuda_devices() -> Result<usize, String> {
    const REMEDY: &str = "run `cargo xtask setup --only tch-cuda`, or install the CUDA libraries of \
                          libtorch's release beside it (see the backend's README)";
    crate::cuda::load().map_err(|cause| format!("{cause}; {REMEDY}"))?;
    match usize::try_from(Cuda::device_count()) {
        Ok(count) if count > 0 && Cuda::is_available() => Ok(count),
        _ => Err("libtorch finds no NVIDIA GPU, or a driver older than its CUDA; try `nvidia-smi`".to_owned()),
    }
}
