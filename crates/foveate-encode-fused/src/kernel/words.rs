//! Values in fewer bits, several to a 32-bit word, as the instructions for short dot products read them.
//!
//! An input row is rounded to bf16, or to u8 with a scale and a zero point of its own. A row's words depend on nothing
//! but the row.

use pulp::{Simd, WithSimd, bytemuck};

use crate::kernel::{AlignedLines, MAX_LANES, TILE_WORDS};

/// The form of values in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WordFormat {
    /// Two bf16, the first in the low half.
    Bf16,
    /// Four 8-bit integers, the first in the low byte.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    I8,
    /// Two 8-bit integers, each in 16 bits.
    I16,
}

impl WordFormat {
    /// Values in a word.
    pub(crate) const fn values(self) -> usize {
        match self {
            Self::Bf16 | Self::I16 => 2,
            Self::I8 => 4,
        }
    }

    /// Puts the integers of a row of weights into words.
    pub(crate) fn pack(self, integers: &[i8]) -> impl Iterator<Item = u32> {
        integers.chunks(self.values()).map(move |values| {
            let parts = values.iter().enumerate().map(|(i, &value)| match self {
                Self::I8 => u32::from(value as u8) << (8 * i),
                Self::I16 | Self::Bf16 => u32::from(i16::from(value) as u16) << (16 * i),
            });
            parts.sum()
        })
    }
}

/// Rows of values in fewer bits.
pub(crate) struct Words {
    pub(crate) format: WordFormat,
    /// `[rows, words]`. Values behind a row's last are zero.
    pub(crate) data: AlignedLines<u32>,
    /// Words in a row.
    pub(crate) width: usize,
    /// Of integers: `value = (integer − zero) · scale`, row by row.
    pub(crate) scales: Vec<f32>,
    pub(crate) zeros: Vec<i32>,
}

impl Words {
    /// Allocates memory for `rows` rows of `values` values, in any format.
    pub(crate) fn new(rows: usize, values: usize) -> Self {
        // Tile registers read whole tiles.
        let rows = rows.next_multiple_of(TILE_WORDS);
        let width = values.div_ceil(2).next_multiple_of(TILE_WORDS);
        Self {
            format: WordFormat::Bf16,
            data: AlignedLines::new(rows * width),
            width,
            scales: vec![0.0; rows],
            zeros: vec![0; rows],
        }
    }

    /// Rounds the rows of `x`, each of `values` values, to the first rows of this memory, each of `width` words.
    pub(crate) fn fill<'a>(&'a mut self, format: WordFormat, width: usize, x: &'a [f32], values: usize) -> Fill<'a> {
        Fill { x, values, words: self.shaped(format, width) }
    }

    /// Makes its rows `width` words of this format. Their contents have no meaning until they are rounded.
    pub(crate) fn shaped(&mut self, format: WordFormat, width: usize) -> &mut Self {
        (self.format, self.width) = (format, width);
        self
    }

    /// Rounds `x` to row `row`.
    #[inline(always)]
    pub(crate) fn round<S: Simd>(&mut self, simd: S, row: usize, x: &[f32]) {
        let words = &mut self.data[row * self.width..][..self.width];
        let (scale, zero) = match self.format {
            WordFormat::Bf16 => return bf16_row(x, bytemuck::cast_slice_mut(words)),
            WordFormat::I8 => u8_row(simd, x, bytemuck::cast_slice_mut::<u32, u8>(words)),
            WordFormat::I16 => u8_row(simd, x, bytemuck::cast_slice_mut::<u32, u16>(words)),
        };
        (self.scales[row], self.zeros[row]) = (scale, zero);
    }
}

/// See [`Words::fill`].
pub(crate) struct Fill<'a> {
    x: &'a [f32],
    values: usize,
    words: &'a mut Words,
}

impl WithSimd for Fill<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (row, x) in self.x.chunks_exact(self.values).enumerate() {
            self.words.round(simd, row, x);
        }
    }
}

/// Rounds to the nearest bf16, ties to even.
#[inline(always)]
fn bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() { 0x7fc0 } else { ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16 }
}

#[inline(always)]
pub(crate) fn bf16_row(x: &[f32], out: &mut [u16]) {
    out[x.len()..].fill(0);
    by_blocks(x, out, bf16);
}

/// Converts values in blocks of a fixed length, which the compiler turns into vectors.
#[inline(always)]
fn by_blocks<T: Copy>(x: &[f32], out: &mut [T], convert: impl Fn(f32) -> T) {
    const BLOCK: usize = 2 * MAX_LANES;
    let ((blocks, tail), (out_blocks, out_tail)) = (x.as_chunks::<BLOCK>(), out.as_chunks_mut::<BLOCK>());
    for (block, out) in blocks.iter().zip(out_blocks.iter_mut()) {
        for i in 0..BLOCK {
            out[i] = convert(block[i]);
        }
    }
    let out_tail = if out_blocks.len() == blocks.len() { out_tail } else { &mut out_blocks[blocks.len()] };
    tail.iter().zip(out_tail).for_each(|(&x, out)| *out = convert(x));
}

/// Rounds blocks of `rows` rows to bf16, two rows in a word, into blocks of `pairs` rows of words. Rows are `width`
/// wide.
#[inline(always)]
pub(crate) fn round_pairs<S: Simd>(simd: S, from: &[f32], rows: usize, width: usize, to: &mut [u32], pairs: usize) {
    for (from, to) in from.chunks_exact(rows * width).zip(to.chunks_exact_mut(pairs * width)) {
        for (pair, words) in from.chunks(2 * width).zip(to.chunks_exact_mut(width)) {
            round_pair(simd, pair, words);
        }
    }
}

/// Rounds two rows to bf16, lane by lane, or one row and zeros.
#[inline(always)]
fn round_pair<S: Simd>(simd: S, pair: &[f32], words: &mut [u32]) {
    let (low, high) = pair.split_at(words.len());
    let ((low, _), (high, _)) = (S::as_simd_f32s(low), S::as_simd_f32s(high));
    let (words, _) = S::as_mut_simd_u32s(words);
    for (i, word) in words.iter_mut().enumerate() {
        *word = bf16_pair(simd, low[i], high.get(i).copied().unwrap_or(simd.splat_f32s(0.0)));
    }
}

/// Rounds two vectors to bf16 and interleaves them, lane by lane.
#[inline(always)]
pub(crate) fn bf16_pair<S: Simd>(simd: S, low: S::f32s, high: S::f32s) -> S::u32s {
    let high = bf16_vector(simd, high);
    let low = simd.wrapping_dyn_shr_u32s(bf16_vector(simd, low), simd.splat_u32s(16));
    simd.or_u32s(low, simd.and_u32s(high, simd.splat_u32s(0xffff_0000)))
}

/// Rounds to the nearest bf16, in the high half of a word whose low half is of no meaning.
#[inline(always)]
fn bf16_vector<S: Simd>(simd: S, x: S::f32s) -> S::u32s {
    let bits = simd.transmute_u32s_f32s(x);
    let odd = simd.and_u32s(simd.wrapping_dyn_shr_u32s(bits, simd.splat_u32s(16)), simd.splat_u32s(1));
    simd.add_u32s(simd.add_u32s(bits, simd.splat_u32s(0x7fff)), odd)
}

/// An integer type that holds 0..=255.
pub(crate) trait Unsigned: Copy + Default {
    fn low(bits: u32) -> Self;
}

impl Unsigned for u8 {
    #[inline(always)]
    fn low(bits: u32) -> Self {
        bits as Self
    }
}

impl Unsigned for u16 {
    #[inline(always)]
    fn low(bits: u32) -> Self {
        (bits & 0xff) as Self
    }
}

/// Rounds a row to 0..=255 over its own range, which always includes zero. Returns the scale and the zero point.
#[inline(always)]
fn u8_row<S: Simd, T: Unsigned>(simd: S, x: &[f32], out: &mut [T]) -> (f32, i32) {
    const MAGIC: f32 = 12_582_912.0; // 1.5 · 2²³: adding it leaves a float's nearest integer in its lowest bits
    let [low, high, nan] = range(simd, x);
    let scale = (high - low) / 255.0 + nan;
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    let zero = (-low * inverse + MAGIC) - MAGIC;
    out[x.len()..].fill(T::default());
    by_blocks(x, out, |x| {
        let shifted = x * inverse + zero;
        // In this order a NaN becomes 0.
        let shifted = if shifted > 0.0 { shifted } else { 0.0 };
        let shifted = if shifted < 255.0 { shifted } else { 255.0 };
        T::low((shifted + MAGIC).to_bits())
    });
    (scale, zero as i32)
}

/// Returns the least and the greatest of the values and zero, and NaN if a value is not finite, else zero.
#[inline(always)]
fn range<S: Simd>(simd: S, x: &[f32]) -> [f32; 3] {
    let zero = simd.splat_f32s(0.0);
    let [mut low, mut high, mut nan] = [[zero; 2]; 3];
    let mut widen = |i: usize, x: S::f32s| {
        low[i] = simd.min_f32s(low[i], x);
        high[i] = simd.max_f32s(high[i], x);
        nan[i] = simd.mul_add_e_f32s(x, zero, nan[i]);
    };
    let (vectors, tail) = S::as_simd_f32s(x);
    let (pairs, last) = vectors.as_chunks::<2>();
    for &[a, b] in pairs {
        widen(0, a);
        widen(1, b);
    }
    last.iter().for_each(|&x| widen(0, x));
    widen(1, simd.partial_load_f32s(tail));
    [
        simd.reduce_min_f32s(simd.min_f32s(low[0], low[1])),
        simd.reduce_max_f32s(simd.max_f32s(high[0], high[1])),
        simd.reduce_sum_f32s(simd.add_f32s(nan[0], nan[1])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_is_the_nearest_value_ties_to_even() {
        let f32s = [1.0, 1.003_906_3, 1.011_718_8, -2.003, 3.4e38, f32::INFINITY, 1e-30, 0.0];
        let nearest = [0x3f80, 0x3f80, 0x3f82, 0xc000, 0x7f80, 0x7f80, 0x0da2, 0];
        assert_eq!(f32s.map(bf16), nearest);
        assert!(f32::from_bits(u32::from(bf16(f32::NAN)) << 16).is_nan());
    }
}
