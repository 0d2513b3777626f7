//! The arithmetic of the CPU forward: safe SIMD, chosen for the processor at run time.
//!
//! Every kernel is written once over [`pulp::Simd`] and compiled for AVX-512, AVX2 with FMA, NEON and plain scalar
//! code. All of them compute **every output value by one fixed sequence of operations**. It depends neither on how rows
//! are grouped into tiles, batches and threads, nor on the width of a vector: sums along vectors run over 64 virtual
//! lanes, sums down columns in order. An image's vector therefore has the same bits in any batch, with any number of
//! threads, and on any processor with fused multiply-add.

// Only x86-64 has tile registers; elsewhere the tests use their model.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_variables))]
pub(crate) mod amx;
pub(crate) mod attention;
pub(crate) mod dot;
pub(crate) mod isa;
pub(crate) mod linear;
pub(crate) mod math;
pub(crate) mod norm;
pub(crate) mod rotary;
pub(crate) mod tile_attention;
pub(crate) mod words;

use pulp::Simd;

/// Rows of the tallest tile: eight rows by three vectors use 24 of 32 registers as accumulators.
pub(crate) const MAX_TILE_ROWS: usize = 8;
/// Vectors in a row of the widest tile.
pub(crate) const MAX_TILE_VECTORS: usize = 3;
/// Rows of a tile register, and words in a row.
pub(crate) const TILE_WORDS: usize = 16;
/// Lanes of the widest supported vector.
pub(crate) const MAX_LANES: usize = 16;

/// Values that begin at a cache line. A vector or a row of a tile that crosses two lines takes twice as long to load.
pub(crate) struct AlignedLines<T> {
    data: Vec<T>,
    first: usize,
    len: usize,
}

impl<T: Copy + Default> AlignedLines<T> {
    /// Returns `len` zeros.
    pub(crate) fn new(len: usize) -> Self {
        const LINE: usize = 64;
        let data = vec![T::default(); len + LINE / size_of::<T>()];
        // Where no alignment can be had, as under an interpreter, the values are only slower.
        let first = data.as_ptr().align_offset(LINE).min(LINE / size_of::<T>());
        Self { data, first, len }
    }
}

impl<T> std::ops::Deref for AlignedLines<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        &self.data[self.first..][..self.len]
    }
}

impl<T> std::ops::DerefMut for AlignedLines<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.data[self.first..][..self.len]
    }
}

/// Returns how many of the `left` rows the next tile takes.
#[inline(always)]
fn tile_rows<S: Simd>(left: usize) -> usize {
    match left {
        8.. if S::REGISTER_COUNT >= 32 => 8,
        4.. if S::REGISTER_COUNT >= 32 => 4,
        // Sixteen registers hold the sums of three rows, a row of weights and a factor, and not a fourth row.
        3.. => 3,
        2.. => 2,
        _ => 1,
    }
}

/// Loads a whole vector, or a partial one padded with zeros.
#[inline(always)]
fn load<S: Simd>(simd: S, src: &[f32]) -> S::f32s {
    match S::as_simd_f32s(src) {
        ([first, ..], _) => *first,
        ([], rest) => simd.partial_load_f32s(rest),
    }
}

/// Stores a vector, or as much of it as fits `dst`.
#[inline(always)]
fn store<S: Simd>(simd: S, dst: &mut [f32], value: S::f32s) {
    match S::as_mut_simd_f32s(dst) {
        ([first, ..], _) => *first = value,
        ([], rest) => simd.partial_store_f32s(rest, value),
    }
}

/// Returns the first `depth` values of `MR` rows that are `ld` apart: all of one length, so that loops over them need
/// no bounds checks.
#[inline(always)]
fn rows_of<T, const MR: usize>(x: &[T], ld: usize, depth: usize) -> [&[T]; MR] {
    let mut rows = [&x[..depth]; MR];
    for (i, row) in rows.iter_mut().enumerate() {
        *row = &x[i * ld..i * ld + depth];
    }
    rows
}

/// Multiplies `MR` rows of `x`, `ld` apart, by a panel of `NV` vectors, into rows of `out` that are `stride` apart.
/// Every value is one chain of fused multiply-adds over the inputs in order.
#[inline(always)]
pub(crate) fn tile<S: Simd, const MR: usize, const NV: usize>(
    simd: S,
    x: &[f32],
    ld: usize,
    panel: &[[S::f32s; NV]],
    out: &mut [f32],
    stride: usize,
) {
    let depth = panel.len();
    let rows = rows_of::<_, MR>(x, ld, depth);
    let mut sums = [[simd.splat_f32s(0.0); NV]; MR];
    for k in 0..depth {
        let weights = panel[k];
        for i in 0..MR {
            let x = simd.splat_f32s(rows[i][k]);
            for j in 0..NV {
                sums[i][j] = simd.mul_add_e_f32s(x, weights[j], sums[i][j]);
            }
        }
    }
    store_tile::<S, MR, NV>(out, stride, &sums);
}

/// Stores a tile's sums into rows of `out` that are `stride` apart.
#[inline(always)]
pub(crate) fn store_tile<S: Simd, const MR: usize, const NV: usize>(
    out: &mut [f32],
    stride: usize,
    sums: &[[S::f32s; NV]; MR],
) {
    for (i, sums) in sums.iter().enumerate() {
        let (out, _) = S::as_mut_simd_f32s(&mut out[i * stride..][..NV * S::F32_LANES]);
        out.copy_from_slice(sums);
    }
}
