use foveate_core::SampleType;

/// The interpolation kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Filter {
    /// The triangle, widened when shrinking (antialiased): Pillow's BILINEAR within a step.
    Bilinear,
    /// The cubic with a = -0.5, widened when shrinking (antialiased): Pillow's BICUBIC within a step.
    Bicubic,
    /// Lanczos with a = 3, widened when shrinking (antialiased): Pillow's LANCZOS within a step.
    Lanczos3,
    /// Pillow's BILINEAR, with its 22-bit weights.
    PillowBilinear,
    /// Pillow's BICUBIC, with its 22-bit weights.
    PillowBicubic,
    /// Pillow's LANCZOS, with its 22-bit weights.
    PillowLanczos3,
    /// Pillow's BOX, widened when shrinking.
    Box,
    /// torchvision's bilinear filter with antialiasing: Pillow's, always with the horizontal pass first. torchvision
    /// rounds its weights to 16 bits, so that samples may differ by one step from it.
    TorchBilinear,
    /// torchvision's bicubic filter with antialiasing, likewise.
    TorchBicubic,
    /// torchvision's bilinear filter with antialiasing on samples of f32, which stay f32.
    TorchBilinearF32,
    /// OpenCV's `INTER_LINEAR`: two by two neighbours at any scale, 11-bit fixed-point weights, no antialiasing.
    OpenCvLinear,
    /// OpenCV's `INTER_AREA`: the mean of the covered area if both axes shrink, otherwise a variant of linear
    /// interpolation.
    OpenCvArea,
    /// OpenCV's `INTER_CUBIC`: a = -0.75, four by four neighbours at any scale, no antialiasing.
    OpenCvCubic,
}

impl Filter {
    /// The filter with the same kernel that asks for no library's rounding; others are returned as they are.
    #[must_use]
    pub const fn approximate(self) -> Self {
        match self {
            Self::PillowBilinear | Self::TorchBilinear => Self::Bilinear,
            Self::PillowBicubic | Self::TorchBicubic => Self::Bicubic,
            Self::PillowLanczos3 => Self::Lanczos3,
            other => other,
        }
    }

    /// The type of the samples that it makes.
    pub const fn sample(self) -> SampleType {
        match self {
            Self::TorchBilinearF32 => SampleType::F32,
            _ => SampleType::U8,
        }
    }

    /// Returns true if the horizontal pass comes first for images of any shape.
    pub const fn is_horizontal_first(self) -> bool {
        matches!(self, Self::TorchBilinear | Self::TorchBicubic)
    }
}
