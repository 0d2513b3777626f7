//! Device names to candle's devices.

use candle_core::Device;
use foveate_encode::EncodeError;

pub(crate) use cuda::{health, kernels};

/// Opens `cpu`, `cuda` or `cuda:N`.
///
/// # Errors
/// [`EncodeError::Device`], naming what is missing. There is no fallback to another device.
pub(crate) fn open(name: &str) -> Result<Device, EncodeError> {
    let opened = match name {
        "cpu" => Ok(Device::Cpu),
        name if name.starts_with("cuda") => cuda::open(name),
        _ => Err("there is no such kind of device; use `cpu`, `cuda` or `cuda:N`".into()),
    };
    opened.map_err(|reason| EncodeError::Device { device: name.to_owned(), reason })
}

#[cfg(feature = "cuda")]
mod cuda {
    use candle_core::{DType, Device, Tensor};
    use foveate_core::Health;
    use foveate_cuda::{CudaError, preload};
    use foveate_encode::Cause;

    /// Looks for the libraries first, because candle panics if one is missing.
    pub(super) fn open(name: &str) -> Result<Device, Cause> {
        let ordinal = foveate_cuda::ordinal(name).ok_or("a device is called `cuda` or `cuda:N`")?;
        let device = foveate_cuda::Device::open(ordinal)?;
        libraries()?;
        // candle's default is one stream per host thread, and an encoder may move to another thread.
        let opened = Device::new_cuda_with_stream(ordinal).and_then(|device| try_kernels(&device).map(|()| device));
        opened.map_err(|error| {
            format!("{}: {error}; see the compute capability that candle was built for", device.name()).into()
        })
    }

    /// Runs one kernel, because candle's kernels may be built for newer devices or a newer driver.
    fn try_kernels(device: &Device) -> candle_core::Result<()> {
        Tensor::zeros(1, DType::F32, device)?.to_dtype(DType::F16)?;
        device.synchronize()
    }

    /// Loads the libraries that candle loads by name when it opens a device.
    fn libraries() -> Result<String, CudaError> {
        let blas = preload("cuBLAS", "libcublas.so")?;
        let random = preload("cuRAND", "libcurand.so")?;
        Ok(format!("cuBLAS ({blas}), cuRAND ({random})"))
    }

    /// The release of CUDA, which decides a device's last bits. candle does not tell that of cuBLAS.
    pub(crate) fn kernels(device: &Device) -> Option<String> {
        if device.is_cpu() { None } else { foveate_cuda::release().ok() }
    }

    /// The CPU, and the available devices.
    pub(crate) fn health() -> Health {
        foveate_cuda::health(libraries)
    }
}

#[cfg(not(feature = "cuda"))]
mod cuda {
    use candle_core::Device;
    use foveate_core::Health;
    use foveate_encode::Cause;

    pub(super) fn open(_: &str) -> Result<Device, Cause> {
        Err("built without candle's CUDA backend: rebuild with `-F candle-cuda`".into())
    }

    pub(crate) fn kernels(_: &Device) -> Option<String> {
        None
    }

    pub(crate) fn health() -> Health {
        Health::all_rust().on(["cpu".to_owned()])
    }
}
