//! Where a graph runs: the device that was asked for or none.

use std::fmt;

use foveate_encode::EncodeError;
use ort::ep::ExecutionProviderDispatch;

/// A device by its name in [`foveate_encode::EncoderOptions::device`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    Cpu,
    Cuda(i32),
    TensorRt(i32),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(id) => write!(f, "cuda:{id}"),
            Self::TensorRt(id) => write!(f, "tensorrt:{id}"),
        }
    }
}

impl Device {
    /// Reads `cpu`, `cuda:N` or `tensorrt:N`, where `:0` may be left out.
    pub(crate) fn parse(name: &str) -> Result<Self, EncodeError> {
        let (kind, id) = name.split_once(':').unwrap_or((name, "0"));
        match (kind, id.parse()) {
            ("cpu", _) if name == "cpu" => Ok(Self::Cpu),
            ("cuda", Ok(id @ 0..)) => Ok(Self::Cuda(id)),
            ("tensorrt", Ok(id @ 0..)) => Ok(Self::TensorRt(id)),
            _ => Err(unavailable(name, "there is no such device; ort has cpu, cuda:N and tensorrt:N")),
        }
    }

    /// What ONNX Runtime is to run the graph with, in order of preference; nothing for the CPU. Every one of them
    /// fails the session when it cannot be had: by default ONNX Runtime would go on without.
    pub(crate) fn providers(self) -> Result<Vec<ExecutionProviderDispatch>, EncodeError> {
        match self {
            Self::Cpu => Ok(Vec::new()),
            Self::Cuda(id) => Ok(vec![cuda(self, id)?]),
            // What TensorRT does not take stays on the same device.
            Self::TensorRt(id) => Ok(vec![tensorrt(self, id)?, cuda(self, id)?]),
        }
    }
}

#[cfg(feature = "cuda")]
fn cuda(_: Device, id: i32) -> Result<ExecutionProviderDispatch, EncodeError> {
    // TF32 keeps 10 bits of a product's factors: not what f32 promises.
    Ok(ort::ep::CUDA::default().with_device_id(id).with_tf32(false).build().error_on_failure())
}

#[cfg(not(feature = "cuda"))]
fn cuda(device: Device, _: i32) -> Result<ExecutionProviderDispatch, EncodeError> {
    Err(not_compiled(device, "ort-cuda"))
}

#[cfg(feature = "tensorrt")]
fn tensorrt(_: Device, id: i32) -> Result<ExecutionProviderDispatch, EncodeError> {
    Ok(ort::ep::TensorRT::default().with_device_id(id).build().error_on_failure())
}

#[cfg(not(feature = "tensorrt"))]
fn tensorrt(device: Device, _: i32) -> Result<ExecutionProviderDispatch, EncodeError> {
    Err(not_compiled(device, "ort-tensorrt"))
}

#[cfg(not(all(feature = "cuda", feature = "tensorrt")))]
fn not_compiled(device: Device, feature: &str) -> EncodeError {
    unavailable(&device.to_string(), format!("not compiled into this build; rebuild with `-F {feature}`, or use cpu"))
}

/// What ONNX Runtime said when a provider could not be had, with what would help.
pub(crate) fn refused(device: Device, words: &str) -> EncodeError {
    let remedy = if words.contains("not enabled in this build") {
        "this libonnxruntime is for the CPU alone: set ORT_DYLIB_PATH to the one of the `onnxruntime-gpu` package"
    } else {
        "its driver and libraries must be installed and found by the system's loader (LD_LIBRARY_PATH)"
    };
    // Before its message there may be a place in its own source.
    let words = words.rsplit_once(" : FAIL : ").map_or(words, |(_, message)| message);
    unavailable(&device.to_string(), format!("{}; {remedy}", words.trim_end_matches('.')))
}

fn unavailable(device: &str, reason: impl Into<String>) -> EncodeError {
    EncodeError::Device { device: device.to_owned(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_would_help() {
        let refusal = |words| refused(Device::Cuda(1), words).to_string();
        assert_eq!(
            refusal("CUDA execution provider is not enabled in this build."),
            "device cuda:1 unavailable: CUDA execution provider is not enabled in this build; this libonnxruntime is for \
             the CPU alone: set ORT_DYLIB_PATH to the one of the `onnxruntime-gpu` package"
        );
        assert_eq!(
            refusal("/src/x.cc:2043 Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load library cuda.so"),
            "device cuda:1 unavailable: Failed to load library cuda.so; its driver and libraries must be installed and \
             found by the system's loader (LD_LIBRARY_PATH)"
        );
    }

    #[test]
    fn devices_are_named() {
        for (name, device) in [("cpu", Device::Cpu), ("cuda:0", Device::Cuda(0)), ("tensorrt:12", Device::TensorRt(12))]
        {
            assert_eq!(Device::parse(name).unwrap(), device);
            assert_eq!(device.to_string(), name);
        }
        assert_eq!(Device::parse("cuda").unwrap(), Device::Cuda(0));
        for name in ["", "cpu:0", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1:2", "CUDA:0"] {
            let error = Device::parse(name).unwrap_err().to_string();
            assert!(error.contains("there is no such device; ort has cpu, cuda:N and tensorrt:N"), "{error}");
        }
    }
}
