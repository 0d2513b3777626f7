//! The functions with a separate version for each instruction set.

use crate::reduced::Reduction;

/// Two blocks of coefficients in natural order, and the places of their samples.
#[derive(Clone, Copy)]
pub(crate) struct Two<'a> {
    pub(crate) coefficients: [&'a [i16; 64]; 2],
    pub(crate) quantization: &'a [i16; 64],
    pub(crate) starts: [usize; 2],
}

/// The computations that a compiler does not vectorize well by itself.
pub(crate) trait JpegKernels: Copy {
    /// [`crate::idct::block`]. Blocks and rows begin at multiples of 8.
    fn blocks(self, two: Two<'_>, samples: &mut [u8], stride: usize);
    /// [`Reduction::block`].
    fn reduced_blocks(self, reduction: &Reduction, two: Two<'_>, samples: &mut [u8], stride: usize);
    /// Adds `bit` to the magnitude of those of the `ones` among a block's coefficients that lack it. Each coefficient
    /// has one bit, in coding order; zeros become positive unless they are `negative`.
    fn refine(self, coefficients: &mut [i16; 64], ones: u64, negative: u64, bit: i16);
    /// [`crate::color::ycbcr`].
    fn ycbcr(self, rows: [&[u8]; 3], out: &mut [[u8; 3]]);
}
