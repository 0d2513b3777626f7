use foveate_core::SampleType;

/// The interpolation kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Filter {
    /// Pillow's BILINEAR: triangle, widened when shrinking (antialiased).
    Bilinear,
    /// Pillow's BICUBIC: a = -0.5, widened when shrinking (antialiased).
    Bicubic,
    /// Pillow's LANCZOS: a = 3, widened when shrinking (antialiased).
    Lanczos3,
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
    /// Pillow's filter with the same kernel; others are returned as they are.
    #[must_use]
    pub const fn of_pillow(self) -> Self {
        match self {
            Self::TorchBilinear => Self::Bilinear,
            Self::TorchBicubic => Self::Bicubic,
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
