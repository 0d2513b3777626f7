//! Inverse DCTs to fewer than 8 x 8 samples, in integers with 13-bit constants, columns first.
//!
//! Two kinds: libjpeg-turbo's own to 4 x 4 and 2 x 2 samples, which read most frequencies, and those that read only the
//! lowest N x N. To 3 and 6 samples, libjpeg-turbo's transforms are of the second kind too, so both are one. Each
//! is linear up to its two roundings, so that a table of factors describes it; equal pixels require equal factors.

use crate::idct::{CONST_BITS, PASS1_BITS, dequantized, descale};
use crate::scale::EighthsScale;
use crate::zigzag::ZIGZAG;

/// Most frequencies read and samples made in one direction; also the lanes of a vector.
const LANES: usize = 8;

/// A transform of blocks to `side` x `side` samples.
#[derive(Debug)]
pub(crate) struct Reduction {
    pub(crate) side: usize,
    /// The rows and columns of coefficients that it reads, the first `count`.
    pub(crate) frequencies: [usize; LANES],
    pub(crate) count: usize,
    /// By frequency, in their order, and by sample; scaled up by 2^(`CONST_BITS` + `extra_bits`). The first frequency's
    /// factor is 1 for all samples and has no place here.
    pub(crate) factors: [[i16; LANES]; LANES],
    extra_bits: u32,
}

impl Reduction {
    /// The transform at a block's side below 8.
    pub(crate) fn of(scale: EighthsScale, side: usize) -> &'static Self {
        match (side, scale.low) {
            (4, false) => &TURBO_4,
            (2, false) => &TURBO_2,
            (6, _) => &LOW[4], // of subsampled components at 3/8
            _ => &LOW[side - 1],
        }
    }

    /// Every transform.
    #[cfg(test)]
    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        LOW.iter().chain([&TURBO_2, &TURBO_4])
    }

    /// Completes the factors of the first half of the samples: the second half mirrors them, with the odd frequencies'
    /// sign changed.
    const fn new(side: usize, read: &[usize], extra_bits: u32, first_half: [&[i16]; 4]) -> Self {
        let mut frequencies = [0; LANES];
        let mut factors = [[0; LANES]; LANES];
        let mut k = 1;
        while k < read.len() {
            frequencies[k] = read[k];
            let mut sample = 0;
            while sample < side.div_ceil(2) {
                let factor = first_half[sample][k - 1];
                factors[k][side - 1 - sample] = if read[k].is_multiple_of(2) { factor } else { -factor };
                factors[k][sample] = factor;
                sample += 1;
            }
            k += 1;
        }
        Self { side, frequencies, count: read.len(), factors, extra_bits }
    }

    /// The last coefficient, in coding order, that it reads.
    pub(crate) fn last_coefficient(&self) -> usize {
        let read = &self.frequencies[..self.count];
        let last = (0..64).rfind(|&k| {
            let natural = usize::from(ZIGZAG[k]);
            read.contains(&(natural % 8)) && read.contains(&(natural / 8))
        });
        last.unwrap_or(0)
    }

    /// The first frequency's factor is 2 to this power.
    #[inline(always)]
    pub(crate) fn scale_bits(&self) -> u32 {
        CONST_BITS + self.extra_bits
    }

    /// Bits to drop after each pass, with rounding.
    #[inline(always)]
    pub(crate) fn bits(&self) -> [u32; 2] {
        [CONST_BITS - PASS1_BITS + self.extra_bits, CONST_BITS + PASS1_BITS + 3 + self.extra_bits]
    }

    /// Turns a block of quantized coefficients, in natural order, into samples at the start of `samples`, whose rows
    /// are `stride` apart.
    #[inline(always)]
    pub(crate) fn block(&self, coefficients: &[i16; 64], quantization: &[i16; 64], samples: &mut [u8], stride: usize) {
        let [first_bits, second_bits] = self.bits();
        let first_row =
            std::array::from_fn::<i32, LANES, _>(|x| dequantized(coefficients, quantization, x) << self.scale_bits());
        let mut columns = [first_row; LANES];
        for (&y, factors) in self.frequencies.iter().zip(&self.factors).take(self.count) {
            for (column, &factor) in columns.iter_mut().zip(factors).take(self.side) {
                for (x, sum) in column.iter_mut().enumerate() {
                    let coefficient = dequantized(coefficients, quantization, y * 8 + x);
                    *sum = sum.wrapping_add(coefficient.wrapping_mul(factor.into()));
                }
            }
        }
        for (y, column) in columns.iter().enumerate().take(self.side) {
            let mut sums = [narrow(column[0], first_bits) << self.scale_bits(); LANES];
            for (&x, factors) in self.frequencies.iter().zip(&self.factors).take(self.count) {
                for (sum, &factor) in sums.iter_mut().zip(factors).take(self.side) {
                    *sum = sum.wrapping_add(narrow(column[x], first_bits).wrapping_mul(factor.into()));
                }
            }
            for i in 0..self.side {
                samples[y * stride + i] = (descale(sums[i], second_bits) + 128).clamp(0, 255) as u8;
            }
        }
    }
}

/// A sum of the first pass, clipped to the 16 bits that the second one reads.
#[inline(always)]
fn narrow(sum: i32, bits: u32) -> i32 {
    descale(sum, bits).clamp(i16::MIN.into(), i16::MAX.into())
}

/// The transform with these numbers of samples and frequencies, known to the compiler, so that it can keep the vectors
/// in registers.
#[inline(always)]
pub(crate) const fn known<const SIDE: usize, const COUNT: usize>() -> &'static Reduction {
    match (SIDE, COUNT) {
        (4, 7) => &TURBO_4,
        (2, 5) => &TURBO_2,
        (6, _) => &LOW[4],
        _ => &LOW[SIDE - 1],
    }
}

/// libjpeg-turbo's "reduced" transform to 4 x 4 samples.
static TURBO_4: Reduction = Reduction::new(
    4,
    &[0, 1, 2, 3, 5, 6, 7],
    1,
    [&[20995, 15137, 7373, -4926, -6270, -4176], &[8697, -15137, -17799, 11893, 6270, -1730], &[], &[]],
);

/// libjpeg-turbo's "reduced" transform to 2 x 2 samples.
static TURBO_2: Reduction = Reduction::new(2, &[0, 1, 3, 5, 7], 2, [&[29692, -10426, 6967, -5906], &[], &[], &[]]);

/// The transforms of the lowest frequencies to 1, 2, 3, 4 and 6 samples. A factor is sqrt(2) cos((2 i + 1) k pi / 2N),
/// with libjpeg's roundings.
static LOW: [Reduction; 5] = [
    Reduction::new(1, &[0], 0, [&[], &[], &[], &[]]),
    Reduction::new(2, &[0, 1], 0, [&[8192], &[], &[], &[]]),
    Reduction::new(3, &[0, 1, 2], 0, [&[10033, 5793], &[0, -11586], &[], &[]]),
    Reduction::new(4, &[0, 1, 2, 3], 0, [&[10703, 8192, 4433], &[4433, -8192, -10703], &[], &[]]),
    Reduction::new(
        6,
        &[0, 1, 2, 3, 4, 5],
        0,
        [&[11190, 10033, 8192, 5793, 2998], &[8192, 0, -8192, -11586, -8192], &[2998, -10033, -8192, 5793, 11190], &[]],
    ),
];

#[cfg(test)]
mod tests {
    use std::f64::consts::{PI, SQRT_2};

    use super::*;

    #[test]
    fn low_factors_are_those_of_the_shorter_dct() {
        for (n, reduction) in [1, 2, 3, 4, 6].into_iter().zip(&LOW) {
            assert_eq!((reduction.side, reduction.count), (n, n));
            for (k, factors) in reduction.factors.iter().enumerate().take(n).skip(1) {
                for (i, &factor) in factors.iter().enumerate() {
                    let angle = (2 * i + 1) as f64 * k as f64 * PI / (2 * n) as f64;
                    let expected = if i < n { SQRT_2 * angle.cos() * f64::from(1 << CONST_BITS) } else { 0.0 };
                    assert!((f64::from(factor) - expected).abs() < 1.6, "{n}: {k}, {i}: {factor}, not {expected}");
                }
            }
        }
    }

    #[test]
    fn the_last_coefficient_is_in_the_square() {
        let last = |side, low| Reduction::of(EighthsScale { eighths: side, low }, side).last_coefficient();
        assert_eq!([1, 2, 3, 4, 6].map(|side| last(side, true)), [0, 4, 12, 24, 51]);
        assert_eq!([2, 4].map(|side| last(side, false)), [63, 63]);
    }

    #[test]
    fn a_flat_block_is_what_the_whole_transform_gives() {
        for reduction in Reduction::all().filter(|reduction| reduction.side > 1) {
            for dc in -2048..2048 {
                let mut block = [0; 64];
                block[0] = dc;
                let mut whole = [0; 64];
                let mut flat = [0; 64];
                reduction.block(&block, &[3; 64], &mut whole, 8);
                crate::idct::flat_block(dc, 3, reduction.side, &mut flat, 8);
                assert_eq!(whole, flat, "{dc} to {} samples", reduction.side);
            }
        }
    }
}
