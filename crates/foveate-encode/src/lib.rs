#![doc = include_str!("../README.md")]

mod graph;
mod overlap;
mod times;

use std::collections::BTreeMap;

use foveate_core::{FaultScope, Health, PixelBatch, Registry, Size, VectorBuf, known_settings, named_backend};

pub use graph::{Graph, GraphFormat, GraphSource, ModelForm};
pub use overlap::{Allocate, Batch, Collected, EncodeSpans, Overlap, Place, host_allocator};
pub use times::EncodeTimes;

#[cfg(feature = "conformance")]
pub mod conformance;

/// Runs a vision model. Normalization belongs to it: it takes raw u8 pixels and knows the mean and std of its model.
pub trait Encoder: Send {
    /// What it takes and gives; constant over its life.
    fn spec(&self) -> &EncoderSpec;

    /// Turns `batch` (any length from 1 to [`EncoderSpec::max_batch`], images of [`EncoderSpec::input`]) into f32
    /// rows `[n, dim]`, in order, complete on the host at return. Rows are **not** L2-normalized. A row depends on its own image
    /// alone, not on the batch around it: bit for bit where `spec().batch_invariant` says so.
    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError>;

    /// Computes the rows of the last batch again, from where the device still has it: a forward without a copy from the
    /// host, to measure what that copy costs.
    ///
    /// # Errors
    /// [`EncodeError::Unsupported`] where nothing stays on a device: no batch was encoded yet, or the encoder reads the
    /// host's memory ([`EncodeError::on_the_host`]).
    fn encode_resident(&mut self, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError>;

    /// How to keep several batches under way, where a device works beside the host; `None` where [`Self::encode`] is all
    /// there is.
    fn overlap(&mut self) -> Option<&mut dyn Overlap>;
}

/// What an encoder takes and gives.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderSpec {
    /// Size of the input images.
    pub input: Size,
    /// Mean of each channel, of samples scaled to 0..=1.
    pub mean: [f32; 3],
    /// Standard deviation of each channel, of samples scaled to 0..=1.
    pub std: [f32; 3],
    /// Components of a vector.
    pub dim: usize,
    /// How tokens become one vector.
    pub pooling: Pooling,
    /// Where it runs.
    pub device: String,
    /// The precision it computes in.
    pub dtype: DType,
    /// Most images in one batch.
    pub max_batch: usize,
    /// Whether a row's bits are the same in every batch.
    pub batch_invariant: bool,
}

impl EncoderSpec {
    /// Refuses a batch of images of another size, or of more images than [`Self::max_batch`], before anything is
    /// computed; every encoder starts with it.
    ///
    /// # Errors
    /// [`EncodeError::Batch`], saying what was given and what is expected.
    pub fn check(&self, batch: PixelBatch<'_>) -> Result<(), EncodeError> {
        if batch.size() != self.input {
            return Err(EncodeError::Batch(format!("images are {}, not {}", batch.size(), self.input)));
        }
        if batch.len() > self.max_batch {
            return Err(EncodeError::Batch(format!("{} images, more than {}", batch.len(), self.max_batch)));
        }
        Ok(())
    }
}

/// How a transformer's tokens become one vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// The class token after the final LayerNorm.
    #[default]
    Cls,
    /// The mean of the patch tokens (no class token, no registers) after the final LayerNorm.
    Mean,
    /// Both, class token first: twice the width.
    ClsMean,
}

impl Pooling {
    /// The name on the command line and in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cls => "cls",
            Self::Mean => "mean",
            Self::ClsMean => "cls+mean",
        }
    }

    /// Components of a vector for a model that is `hidden` wide.
    pub const fn dim(self, hidden: usize) -> usize {
        match self {
            Self::Cls | Self::Mean => hidden,
            Self::ClsMean => 2 * hidden,
        }
    }
}

/// The precision a model computes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// IEEE 754 single precision.
    #[default]
    F32,
    /// IEEE 754 half precision.
    F16,
    /// bfloat16.
    Bf16,
}

impl DType {
    /// The name on the command line and in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }
}

/// Why a batch could not be encoded, or an encoder not be made. Always a run fault: the next batch would fail too.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The model's files are missing, incomplete or of another architecture.
    #[error("model: {0}")]
    Model(String),
    /// The device or its library is missing. There is no silent fallback to another one.
    #[error("device {device} unavailable: {reason}")]
    Device {
        /// The device asked for.
        device: String,
        /// Why it cannot be used, and what would help.
        reason: String,
    },
    /// The backend cannot do what the options ask for.
    #[error("not supported by this encoder: {0}")]
    Unsupported(String),
    /// The batch is not what `spec()` asks for.
    #[error("batch does not fit the encoder: {0}")]
    Batch(String),
    /// The engine failed.
    #[error("encoder failed: {0}")]
    Engine(String),
}

impl EncodeError {
    /// What [`Encoder::encode_resident`] answers where the device is the host.
    pub fn on_the_host() -> Self {
        Self::Unsupported("the forward reads the host's memory, so no batch is kept on a device".to_owned())
    }

    /// Always [`FaultScope::Run`].
    pub fn scope(&self) -> FaultScope {
        FaultScope::Run
    }
}

/// Normalizes RGB u8 samples as `transformers` does: `(x / 255 - mean) / std`, NHWC u8 to NCHW f32. The encoders fold this
/// into their weights; this reference is for tests, profiles and engines that cannot fold.
pub fn normalize_nchw(batch: PixelBatch<'_>, mean: [f32; 3], std: [f32; 3], out: &mut Vec<f32>) {
    let plane = batch.size().width as usize * batch.size().height as usize;
    out.clear();
    out.resize(batch.as_slice().len(), 0.0);
    for (image, planes) in batch.as_slice().chunks_exact(plane * 3).zip(out.chunks_exact_mut(plane * 3)) {
        for (channel, values) in planes.chunks_exact_mut(plane).enumerate() {
            for (value, pixel) in values.iter_mut().zip(image.chunks_exact(3)) {
                *value = (f32::from(pixel[channel]) / 255.0 - mean[channel]) / std[channel];
            }
        }
    }
}

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

/// A model as an encoder backend receives it, in one of the forms that it [takes](EncoderBackend::takes): opaque here,
/// because trait crates know no architecture. What travels inside is the `foveate-dinov2` crate's `Model`
/// ([`ModelForm::Dinov2`]) or a [`Graph`] ([`ModelForm::Graph`]).
pub type AnyModel = std::sync::Arc<dyn std::any::Any + Send + Sync>;

type Open = dyn Fn(&AnyModel, &EncoderOptions) -> Result<Box<dyn Encoder>, EncodeError> + Send + Sync;

/// A named way to make encoders.
pub struct EncoderBackend {
    name: &'static str,
    about: &'static str,
    open: Box<Open>,
    health: fn() -> Health,
    takes: &'static [ModelForm],
}

impl EncoderBackend {
    /// A backend called `name`; `open` makes an encoder of a model.
    pub fn new<F>(name: &'static str, about: &'static str, open: F) -> Self
    where
        F: Fn(&AnyModel, &EncoderOptions) -> Result<Box<dyn Encoder>, EncodeError> + Send + Sync + 'static,
    {
        Self { name, about, open: Box::new(open), health: Health::all_rust, takes: &[ModelForm::Dinov2] }
    }

    /// The same, taking models in these forms, the preferred one first; without it, DINOv2 checkpoints.
    #[must_use]
    pub fn taking(self, takes: &'static [ModelForm]) -> Self {
        Self { takes, ..self }
    }

    /// The forms of a model that it can be opened with, the preferred one first.
    pub fn takes(&self) -> &'static [ModelForm] {
        self.takes
    }

    /// The same, answering [`foveate_core::Backend::health`] with `health`; without it, it counts as all Rust.
    #[must_use]
    pub fn with_health(self, health: fn() -> Health) -> Self {
        Self { health, ..self }
    }

    /// Makes an encoder.
    pub fn open(&self, model: &AnyModel, options: &EncoderOptions) -> Result<Box<dyn Encoder>, EncodeError> {
        (self.open)(model, options)
    }
}

named_backend!(EncoderBackend);

/// The encoders compiled into a program.
pub type EncoderRegistry = Registry<EncoderBackend>;
