//! The functions with a separate version for each instruction set.

use crate::reduced::Reduction;

/// The computations that a compiler does not vectorize well by itself.
pub(crate) trait Kernels: Copy {
    /// [`crate::idct::block`].
    fn block(self, coefficients: &[i16; 64], quantization: &[i16; 64], samples: &mut [u8], stride: usize);
    /// [`Reduction::block`].
    fn reduced_block(
        self,
        reduction: &Reduction,
        coefficients: &[i16; 64],
        quantization: &[i16; 64],
        samples: &mut [u8],
        stride: usize,
    );
    /// [`crate::color::ycbcr`].
    fn ycbcr(self, rows: [&[u8]; 3], out: &mut [[u8; 3]]);
}
