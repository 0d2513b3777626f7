//! The device of a graph: the requested one or none.

use std::fmt;

use foveate_encode::{Cause, EncodeError};
use ort::ep::ExecutionProviderDispatch;

/// A device, by its name in [`foveate_encode::EncoderOptions::device`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrtDevice {
    Cpu,
    Cuda(i32),
    TensorRt(i32),
}

impl fmt::Display for OrtDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(id) => write!(f, "cuda:{id}"),
            Self::TensorRt(id) => write!(f, "tensorrt:{id}"),
        }
    }
}

impl OrtDevice {
    /// Parses `cpu`, `cuda:N` or `tensorrt:N`; `:0` is optional.
    pub(crate) fn parse(name: &str) -> Result<Self, EncodeError> {
        let (kind, id) = name.split_once(':').unwrap_or((name, "0"));
        match (kind, id.parse()) {
            ("cpu", _) if name == "cpu" => Ok(Self::Cpu),
            ("cuda", Ok(id @ 0..)) => Ok(Self::Cuda(id)),
            ("tensorrt", Ok(id @ 0..)) => Ok(Self::TensorRt(id)),
            _ => Err(unavailable(name, "there is no such device; ort has cpu, cuda:N and tensorrt:N")),
        }
    }

    /// Returns ONNX Runtime's providers for the graph, in order of preference; none for the CPU. An unavailable one
    /// fails the session; by default ONNX Runtime would continue without it.
    pub(crate) fn providers(self, wishes: &Wishes) -> Result<Vec<ExecutionProviderDispatch>, EncodeError> {
        match self {
            Self::Cpu => Ok(Vec::new()),
            Self::Cuda(id) => Ok(vec![cuda(self, id, wishes)?]),
            // Operators that TensorRT does not take stay on the same device.
            Self::TensorRt(id) => Ok(vec![tensorrt(self, id, wishes)?, cuda(self, id, wishes)?]),
        }
    }
}

/// Options for computing on a GPU.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    /// True if f32 products may round their factors to 10 bits.
    #[cfg(feature = "cuda")]
    pub(crate) tf32: bool,
    #[cfg(feature = "tensorrt")]
    pub(crate) engines: Option<crate::engines::EngineCaches>,
}

impl Wishes {
    /// Options before the graph is known.
    pub(crate) fn new(tf32: bool) -> Self {
        #[cfg(not(feature = "cuda"))]
        let _ = tf32;
        Self {
            #[cfg(feature = "cuda")]
            tf32,
            #[cfg(feature = "tensorrt")]
            engines: None,
        }
    }
}

#[cfg(feature = "cuda")]
fn cuda(_: OrtDevice, id: i32, wishes: &Wishes) -> Result<ExecutionProviderDispatch, EncodeError> {
    let provider = ort::ep::CUDA::default().with_device_id(id).with_tf32(wishes.tf32);
    // The default benchmarks every algorithm of a convolution for every batch size and takes the fastest. The choice,
    // and with it the bits, may differ the next time.
    let provider = provider.with_conv_algorithm_search(ort::ep::cuda::ConvAlgorithmSearch::Heuristic);
    Ok(provider.build().error_on_failure())
}

#[cfg(not(feature = "cuda"))]
fn cuda(device: OrtDevice, _: i32, _: &Wishes) -> Result<ExecutionProviderDispatch, EncodeError> {
    Err(not_compiled(device, "ort-cuda"))
}

#[cfg(feature = "tensorrt")]
fn tensorrt(_: OrtDevice, id: i32, wishes: &Wishes) -> Result<ExecutionProviderDispatch, EncodeError> {
    use foveate_encode::DType;

    let mut provider = ort::ep::TensorRT::default().with_device_id(id);
    let Some(engines) = &wishes.engines else {
        // The availability check must not build an engine.
        return Ok(provider.with_min_subgraph_size(1000).build().error_on_failure());
    };
    provider = provider.with_fp16(engines.dtype == DType::F16).with_bf16(engines.dtype == DType::Bf16);
    provider = provider.with_layer_norm_fp32_fallback(engines.dtype == DType::F16);
    provider = provider.with_engine_cache(true).with_engine_cache_path(&engines.engines);
    provider = provider.with_timing_cache(true).with_timing_cache_path(&engines.timings);
    if let Some([smallest, usual, largest]) = &engines.shapes {
        provider = provider.with_profile_min_shapes(smallest).with_profile_opt_shapes(usual);
        provider = provider.with_profile_max_shapes(largest);
    }
    Ok(provider.build().error_on_failure())
}

#[cfg(not(feature = "tensorrt"))]
fn tensorrt(device: OrtDevice, _: i32, _: &Wishes) -> Result<ExecutionProviderDispatch, EncodeError> {
    Err(not_compiled(device, "ort-tensorrt"))
}

#[cfg(not(all(feature = "cuda", feature = "tensorrt")))]
fn not_compiled(device: OrtDevice, feature: &str) -> EncodeError {
    unavailable(&device.to_string(), format!("not compiled into this build; rebuild with `-F {feature}`, or use cpu"))
}

/// Converts ONNX Runtime's message about an unavailable provider, and adds the remedy.
pub(crate) fn refused(device: OrtDevice, words: &str) -> EncodeError {
    /// Words of a message, with the remedy; the first match applies.
    const REMEDIES: [(&[&str], &str); 5] = [
        (
            &["not enabled in this build"],
            "this libonnxruntime is for the CPU alone: run `cargo xtask setup --only ort-cuda`, or set ORT_DYLIB_PATH to \
             the one of the `onnxruntime-gpu` package",
        ),
        (
            &["libnvinfer", "libnvonnxparser"],
            "TensorRT 10 for CUDA 13 is needed: `pip install \"tensorrt-cu13<11\"` brings it from NVIDIA; name its folder \
             tensorrt_libs in FOVEATE_CUDA_LIB",
        ),
        (
            &["libcuda.so", "no CUDA-capable device", "driver version is insufficient", "CUDA failure 35"],
            "NVIDIA's driver must be installed, for CUDA 13, and find a GPU: see what `nvidia-smi` says",
        ),
        (&["invalid device ordinal"], "there is no such GPU: `nvidia-smi -L` lists those that there are"),
        (
            &[],
            "run `cargo xtask setup --only ort-cuda`, or name the folders of NVIDIA's libraries in FOVEATE_CUDA_LIB or \
             LD_LIBRARY_PATH",
        ),
    ];
    let mut remedies = REMEDIES.iter();
    let remedy = remedies.find(|(names, _)| names.is_empty() || names.iter().any(|name| words.contains(name)));
    let remedy = remedy.map_or("", |(_, remedy)| remedy);
    unavailable(&device.to_string(), format!("{}; {remedy}", message(words).trim_end_matches('.')))
}

/// Strips the leading location in ONNX Runtime's source from a message.
fn message(words: &str) -> &str {
    words.rsplit_once(" : FAIL : ").map_or(words, |(_, message)| message)
}

fn unavailable(device: &str, reason: impl Into<Cause>) -> EncodeError {
    EncodeError::Device { device: device.to_owned(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_would_help() {
        let refusal = |words| foveate_core::error_chain(&refused(OrtDevice::Cuda(1), words));
        assert_eq!(
            refusal("CUDA execution provider is not enabled in this build."),
            "device cuda:1 unavailable: CUDA execution provider is not enabled in this build; this libonnxruntime is for \
             the CPU alone: run `cargo xtask setup --only ort-cuda`, or set ORT_DYLIB_PATH to the one of the \
             `onnxruntime-gpu` package"
        );
        assert_eq!(
            refusal("/src/x.cc:2043 Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load library cuda.so"),
            "device cuda:1 unavailable: Failed to load library cuda.so; run `cargo xtask setup --only ort-cuda`, or name \
             the folders of NVIDIA's libraries in FOVEATE_CUDA_LIB or LD_LIBRARY_PATH"
        );
        for (words, remedy) in [
            ("Failed to load library x with error: libcublasLt.so.13: cannot open", "setup --only ort-cuda"),
            ("Failed to load library x with error: libnvinfer.so.10: cannot open", "pip install \"tensorrt-cu13<11\""),
            ("Failed to load library x with error: libcuda.so.1: cannot open", "NVIDIA's driver must be installed"),
            ("CUDA failure 100: no CUDA-capable device is detected ; GPU=-1", "NVIDIA's driver must be installed"),
            ("CUDA failure 101: invalid device ordinal ; GPU=7", "`nvidia-smi -L` lists"),
        ] {
            let text = refusal(words);
            assert!(text.contains(words) && text.contains(remedy), "{text}");
        }
    }

    #[test]
    fn devices_are_named() {
        for (name, device) in
            [("cpu", OrtDevice::Cpu), ("cuda:0", OrtDevice::Cuda(0)), ("tensorrt:12", OrtDevice::TensorRt(12))]
        {
            assert_eq!(OrtDevice::parse(name).unwrap(), device);
            assert_eq!(device.to_string(), name);
        }
        assert_eq!(OrtDevice::parse("cuda").unwrap(), OrtDevice::Cuda(0));
        for name in ["", "cpu:0", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1:2", "CUDA:0"] {
            let error = foveate_core::error_chain(&OrtDevice::parse(name).unwrap_err());
            assert!(error.contains("there is no such device; ort has cpu, cuda:N and tensorrt:N"), "{error}");
        }
    }
}
