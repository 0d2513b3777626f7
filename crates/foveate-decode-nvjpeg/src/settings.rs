use foveate_cuda::nvjpeg::{Huffman, Processors};
use foveate_preprocess::{DeviceOptions, PreprocessError};

/// The parts of the device that decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NvjpegBackend {
    /// The chip's engines if it has some, and the host for what they do not take; else as `Hybrid`.
    Auto,
    /// As `Auto`, and the host decodes images while it would wait for the device: which ones, the moment decides.
    Mixed,
    /// As `Auto`, but requires engines.
    Hardware,
    /// Huffman decoding on the host, everything else on the device.
    Hybrid,
    /// Everything on the device's general-purpose processors.
    Gpu,
}

impl NvjpegBackend {
    /// Parses the setting `backend`.
    pub(crate) fn of(options: &DeviceOptions) -> Result<Self, PreprocessError> {
        match options.settings(&["backend"])?.get("backend").map(String::as_str) {
            None | Some("auto") => Ok(Self::Auto),
            Some("mixed") => Ok(Self::Mixed),
            Some("hardware") => Ok(Self::Hardware),
            Some("hybrid") => Ok(Self::Hybrid),
            Some("gpu") => Ok(Self::Gpu),
            Some(other) => Err(PreprocessError::Unsupported(format!(
                "setting backend={other}: it is auto, mixed, hardware, hybrid or gpu"
            ))),
        }
    }

    pub(crate) fn processors(self) -> Processors {
        if matches!(self, Self::Auto | Self::Mixed | Self::Hardware) {
            Processors::EnginesToo
        } else {
            Processors::Cores
        }
    }

    pub(crate) fn huffman(self) -> Huffman {
        if self == Self::Gpu { Huffman::Device } else { Huffman::Host }
    }
}
