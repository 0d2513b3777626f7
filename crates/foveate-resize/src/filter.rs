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
    /// OpenCV's `INTER_LINEAR`: two by two neighbours at any scale, 11-bit fixed-point weights, no antialiasing.
    OpenCvLinear,
    /// OpenCV's `INTER_AREA`: the mean of the covered area if both axes shrink, otherwise a variant of linear
    /// interpolation.
    OpenCvArea,
    /// OpenCV's `INTER_CUBIC`: a = -0.75, four by four neighbours at any scale, no antialiasing.
    OpenCvCubic,
}
