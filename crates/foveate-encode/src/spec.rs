use foveate_core::{InputFormat, PixelBatch, SampleType, Size};

use crate::error::EncodeError;

/// An encoder's inputs and outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderSpec {
    /// Size of the input images.
    pub input: Size,
    /// Type of their samples.
    pub sample: SampleType,
    /// Mean of each channel, of samples scaled to 0..=1.
    pub mean: [f32; 3],
    /// Standard deviation of each channel, of samples scaled to 0..=1.
    pub std: [f32; 3],
    /// Components of a vector.
    pub dim: usize,
    /// The pooling of tokens into a vector.
    pub pooling: Pooling,
    /// The device it runs on.
    pub device: String,
    /// Precision of the computation.
    pub dtype: DType,
    /// The most images in one batch.
    pub max_batch: usize,
    /// True if a row's bits are the same in every batch.
    pub batch_invariant: bool,
    /// The part that decides a row's last bits together with the model and the options: the instruction set, or the
    /// version of a library that was found at run time. `None` if the program alone decides them, or if they are not
    /// known.
    pub kernels: Option<String>,
}

impl EncoderSpec {
    /// Size and samples of the input images.
    pub const fn format(&self) -> InputFormat {
        InputFormat { size: self.input, sample: self.sample }
    }

    /// Refuses a batch with images of another size, or with more than [`Self::max_batch`] images. Every encoder calls
    /// it before it computes anything.
    ///
    /// # Errors
    /// [`EncodeError::Batch`], with the actual and the expected values.
    pub fn check(&self, batch: PixelBatch<'_>) -> Result<(), EncodeError> {
        if batch.format() != self.format() {
            return Err(EncodeError::Batch(format!("images are {}, not {}", batch.format(), self.format())));
        }
        if batch.len() > self.max_batch {
            return Err(EncodeError::Batch(format!("{} images, more than {}", batch.len(), self.max_batch)));
        }
        Ok(())
    }
}

/// The pooling of a transformer's tokens into one vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// The class token after the final LayerNorm.
    #[default]
    Cls,
    /// The mean of the patch tokens (no class token, no registers) after the final LayerNorm.
    Mean,
    /// Both, class token first: twice the width.
    ClsMean,
    /// The first register token after the final LayerNorm, a second class token in TIPSv2.
    Register,
    /// The model's own head: attention pooling, or the class token, and a projection if there is one.
    Head,
}

impl Pooling {
    /// Every pooling, the usual one first.
    pub const ALL: [Self; 5] = [Self::Cls, Self::Mean, Self::ClsMean, Self::Register, Self::Head];

    /// The name on the command line and in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cls => "cls",
            Self::Mean => "mean",
            Self::ClsMean => "cls+mean",
            Self::Register => "register",
            Self::Head => "head",
        }
    }

    /// The length of a vector pooled from tokens of width `hidden`. A head's projection may change it.
    pub const fn dim(self, hidden: usize) -> usize {
        match self {
            Self::ClsMean => 2 * hidden,
            _ => hidden,
        }
    }

    /// Returns true if the mean of the patches is a part of the vector.
    pub const fn reads_patches(self) -> bool {
        matches!(self, Self::Mean | Self::ClsMean)
    }
}

/// The precision of a model's computation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum DType {
    /// IEEE 754 single precision.
    #[default]
    F32,
    /// IEEE 754 half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// Products of 8-bit integers, the rest in floating point.
    I8,
}

impl DType {
    /// Every precision, most exact first.
    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::Bf16, Self::I8];

    /// The name on the command line and in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I8 => "i8",
        }
    }
}
