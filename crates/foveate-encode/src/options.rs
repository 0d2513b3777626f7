use std::collections::BTreeMap;

use foveate_core::known_settings;

use crate::error::EncodeError;
use crate::spec::{DType, Pooling};

/// What the program asks of an encoder backend, beyond the model.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderOptions {
    /// How tokens become a vector.
    pub pooling: Pooling,
    /// Precision to compute in.
    pub dtype: DType,
    /// `cpu`, `cuda:0`, ….
    pub device: String,
    /// Most images in one batch.
    pub max_batch: usize,
    /// Threads for the forward on a CPU; the caller owns the machine's budget.
    pub threads: usize,
    /// What only the backend understands (`optimization` of `ort`), by name; see [`Self::settings`].
    pub settings: BTreeMap<String, String>,
}

impl Default for EncoderOptions {
    /// CLS tokens in f32 on one thread of the CPU, at most 32 images a batch.
    fn default() -> Self {
        Self {
            pooling: Pooling::default(),
            dtype: DType::default(),
            device: "cpu".to_owned(),
            max_batch: 32,
            threads: 1,
            settings: BTreeMap::new(),
        }
    }
}

impl EncoderOptions {
    /// The settings, once every one of them is among those that the backend has (`known`).
    ///
    /// # Errors
    /// [`EncodeError::Unsupported`], naming the setting and those there are.
    pub fn settings(&self, known: &[&str]) -> Result<&BTreeMap<String, String>, EncodeError> {
        known_settings(&self.settings, known).map_err(EncodeError::Unsupported)
    }
}
