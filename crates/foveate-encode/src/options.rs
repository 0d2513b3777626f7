use std::collections::BTreeMap;

use foveate_core::{SampleType, Size, known_settings};

use crate::error::EncodeError;
use crate::spec::{DType, EncoderSpec, Pooling};

/// Options of an encoder backend, beyond the model.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderOptions {
    /// The pooling of tokens into a vector.
    pub pooling: Pooling,
    /// Precision of the computation.
    pub dtype: DType,
    /// `cpu`, `cuda:0`, ….
    pub device: String,
    /// The type of the images' samples.
    pub sample: SampleType,
    /// The most images in one batch.
    pub max_batch: usize,
    /// Threads for the forward on a CPU; the caller divides the machine's cores.
    pub threads: usize,
    /// Settings specific to the backend (`optimization` of `ort`), by name; see [`Self::settings`].
    pub settings: BTreeMap<String, String>,
}

impl Default for EncoderOptions {
    /// CLS tokens in f32 on one CPU thread, at most 32 images per batch.
    fn default() -> Self {
        Self {
            pooling: Pooling::default(),
            dtype: DType::default(),
            device: "cpu".to_owned(),
            sample: SampleType::default(),
            max_batch: 32,
            threads: 1,
            settings: BTreeMap::new(),
        }
    }
}

impl EncoderOptions {
    /// Returns the spec of a model with vectors of length `dim` that takes images of size `input`, normalized by
    /// `(mean, std)`. Rows may depend on their batch; `kernels` is `None`.
    pub fn spec(&self, input: Size, (mean, std): ([f32; 3], [f32; 3]), dim: usize) -> EncoderSpec {
        EncoderSpec {
            input,
            sample: self.sample,
            mean,
            std,
            dim,
            pooling: self.pooling,
            device: self.device.clone(),
            dtype: self.dtype,
            max_batch: self.max_batch.max(1),
            batch_invariant: false,
            kernels: None,
        }
    }

    /// Refuses samples of another type than u8, for engines that take nothing else.
    ///
    /// # Errors
    /// [`EncodeError::Unsupported`], naming `engine` and the remedy.
    pub fn only_u8(&self, engine: &str) -> Result<(), EncodeError> {
        match self.sample {
            SampleType::U8 => Ok(()),
            SampleType::F32 => Err(EncodeError::Unsupported(format!(
                "images in f32, as this model's recipe resizes them, in {engine}; \
                 use `fused`, `candle` or `tch`, or `--preprocess squash` for other vectors"
            ))),
        }
    }

    /// Returns the settings, after checking that each is among those that the backend has (`known`).
    ///
    /// # Errors
    /// [`EncodeError::Unsupported`], naming the unknown setting and the known ones.
    pub fn settings(&self, known: &[&str]) -> Result<&BTreeMap<String, String>, EncodeError> {
        known_settings(&self.settings, known).map_err(EncodeError::Unsupported)
    }
}
