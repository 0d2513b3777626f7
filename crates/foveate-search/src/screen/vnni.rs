//! Products of codes with `vpdpbusd`, which multiplies 64 of them at a time.
//!
//! One side of that instruction is without sign: codes of `b` are 128 more than they are, which the sums of the codes
//! of `a` take back.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::block::{CodeBlock, FineBlock};
use crate::codes::{FineScale, NEVER, WORD};
use crate::order::{LEAF, LeafMask, is_leaf};

/// Rows of `a` and vectors of rows of `b` in a tile.
const ROWS: usize = 4;
const VECTORS: usize = 4;
const LANES: usize = 16;
/// Rows of `b` in a panel, which stays in the first cache.
const PANEL: usize = VECTORS * LANES;
const _: () = assert!(PANEL == LEAF);

pub(super) fn is_here() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni")
}

pub(super) fn find(
    a: &CodeBlock<'_>,
    b: &CodeBlock<'_>,
    kept: &[LeafMask],
    width: usize,
    panels: &mut Vec<u8>,
    found: &mut Vec<(u32, u32)>,
) {
    let words = width / WORD;
    let of_b = b.biases.len();
    assert!(
        width.is_multiple_of(WORD) && a.biases.len().is_multiple_of(ROWS) && a.codes.len() == a.biases.len() * width
    );
    assert!(a.limits.len() == a.biases.len() && b.limits.len() == of_b && b.codes.len() == of_b * width);
    let starts: Vec<i32> = a
        .codes
        .chunks_exact(width)
        .zip(a.biases)
        .map(|(codes, bias)| bias - 128 * codes.iter().map(|&code| i32::from(code)).sum::<i32>())
        .collect();
    // SAFETY: the processor has the instructions, and the lengths were checked.
    unsafe { find_detected(a, b, kept, words, &starts, panels, found) }
}

/// # Safety
/// The processor has AVX-512F and VNNI; the lengths are those that [`find`] checks.
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn find_detected(
    a: &CodeBlock<'_>,
    b: &CodeBlock<'_>,
    kept: &[LeafMask],
    words: usize,
    starts: &[i32],
    panels: &mut Vec<u8>,
    found: &mut Vec<(u32, u32)>,
) {
    let width = words * WORD;
    let of_b = b.biases.len();
    for (first, &kept) in (0..of_b).step_by(PANEL).zip(kept) {
        if kept == 0 {
            continue;
        }
        let count = PANEL.min(of_b - first);
        pack(&b.codes[first * width..][..count * width], width, panels);
        let mut biases = [NEVER; PANEL];
        let mut limits = [i32::MAX; PANEL];
        biases[..count].copy_from_slice(&b.biases[first..][..count]);
        limits[..count].copy_from_slice(&b.limits[first..][..count]);
        for row in (0..a.biases.len()).step_by(ROWS).filter(|&row| is_leaf(kept, row)) {
            let tile = Tile {
                codes: &a.codes[row * width..][..ROWS * width],
                starts: &starts[row..][..ROWS],
                limits: &a.limits[row..][..ROWS],
                panel: panels,
                biases: &biases,
                limits_of_panel: &limits,
            };
            // SAFETY: the tile's slices have the lengths that its comments state.
            let masks = unsafe { tile.masks(words) };
            for (i, mut left) in masks.into_iter().enumerate() {
                while left != 0 {
                    found.push(((row + i) as u32, first as u32 + left.trailing_zeros()));
                    left &= left - 1;
                }
            }
        }
    }
}

/// Keeps the pairs that reach their limit.
pub(super) fn keep(a: &FineBlock<'_>, b: &FineBlock<'_>, scale: &FineScale, found: &mut Vec<(u32, u32)>) {
    // SAFETY: the unit is chosen on processors that have the instructions.
    found.retain(|&(i, j)| a.reaches(b, i, j, scale, |a, b| unsafe { product(a, b) }));
}

/// # Safety
/// The processor has AVX-512F and VNNI.
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn product(a: &[i8], b: &[i8]) -> i32 {
    let (a, a_rest) = a.as_chunks::<64>();
    let (b, b_rest) = b.as_chunks::<64>();
    let mut sum = _mm512_setzero_si512();
    let mut of_a = _mm512_setzero_si512();
    let offset = _mm512_set1_epi8(i8::MIN);
    for (a, b) in a.iter().zip(b) {
        // SAFETY: both have 64 codes.
        let a = unsafe { _mm512_loadu_si512(a.as_ptr().cast()) };
        // SAFETY: as above.
        let b = unsafe { _mm512_loadu_si512(b.as_ptr().cast()) };
        sum = _mm512_dpbusd_epi32(sum, _mm512_xor_si512(b, offset), a);
        of_a = _mm512_dpbusd_epi32(of_a, offset, a);
    }
    // Codes are whole words, so that what is left is, too.
    let mask = (1_u16 << (a_rest.len() / WORD)) - 1;
    // SAFETY: both rests have as many words as the mask.
    let a = unsafe { _mm512_maskz_loadu_epi32(mask, a_rest.as_ptr().cast()) };
    // SAFETY: as above.
    let b = unsafe { _mm512_maskz_loadu_epi32(mask, b_rest[..a_rest.len()].as_ptr().cast()) };
    sum = _mm512_dpbusd_epi32(sum, _mm512_xor_si512(b, offset), a);
    of_a = _mm512_dpbusd_epi32(of_a, offset, a);
    _mm512_reduce_add_epi32(_mm512_sub_epi32(sum, of_a))
}

/// Orders codes as `[words, PANEL, WORD]`.
fn pack(codes: &[i8], width: usize, panel: &mut Vec<u8>) {
    panel.clear();
    panel.resize(width * PANEL, 128);
    for (row, codes) in codes.chunks_exact(width).enumerate() {
        for (word, codes) in codes.as_chunks::<WORD>().0.iter().enumerate() {
            let out = &mut panel[(word * PANEL + row) * WORD..][..WORD];
            for (out, &code) in out.iter_mut().zip(codes) {
                *out = code as u8 ^ 0x80;
            }
        }
    }
}

struct Tile<'a> {
    /// `[ROWS, words * WORD]`
    codes: &'a [i8],
    starts: &'a [i32],
    limits: &'a [i32],
    /// `[words, PANEL, WORD]`
    panel: &'a [u8],
    biases: &'a [i32; PANEL],
    limits_of_panel: &'a [i32; PANEL],
}

impl Tile<'_> {
    /// For each row, a bit for each row of the panel with which it reaches the limit.
    ///
    /// # Safety
    /// The processor has AVX-512F and VNNI; the slices have the lengths that their comments state.
    #[target_feature(enable = "avx512f,avx512vnni")]
    #[allow(clippy::needless_range_loop, reason = "iterators of arrays leave the registers: a third of the speed")]
    #[inline]
    unsafe fn masks(&self, words: usize) -> [u64; ROWS] {
        let width = words * WORD;
        let codes = self.codes.as_ptr();
        let panel = self.panel.as_ptr();
        let mut sums = [[_mm512_setzero_si512(); VECTORS]; ROWS];
        for (sums, &start) in sums.iter_mut().zip(self.starts) {
            *sums = [_mm512_set1_epi32(start); VECTORS];
        }
        for word in 0..words {
            // SAFETY: below `words`, within the panel and the rows.
            unsafe {
                let line = panel.add(word * PANEL * WORD);
                let others: [__m512i; VECTORS] =
                    std::array::from_fn(|vector| _mm512_loadu_si512(line.add(vector * LANES * WORD).cast()));
                for (row, sums) in sums.iter_mut().enumerate() {
                    let code = codes.add(row * width + word * WORD).cast::<i32>().read_unaligned();
                    let code = _mm512_set1_epi32(code);
                    for (sum, other) in sums.iter_mut().zip(others) {
                        *sum = _mm512_dpbusd_epi32(*sum, other, code);
                    }
                }
            }
        }
        let mut masks = [0; ROWS];
        for vector in 0..VECTORS {
            // SAFETY: both arrays have `PANEL` numbers.
            let biases = unsafe { _mm512_loadu_si512(self.biases.as_ptr().add(vector * LANES).cast()) };
            // SAFETY: as above.
            let limits = unsafe { _mm512_loadu_si512(self.limits_of_panel.as_ptr().add(vector * LANES).cast()) };
            for row in 0..ROWS {
                let sum = _mm512_add_epi32(sums[row][vector], biases);
                let limit = _mm512_min_epi32(limits, _mm512_set1_epi32(self.limits[row]));
                masks[row] |= u64::from(_mm512_cmpge_epi32_mask(sum, limit)) << (vector * LANES);
            }
        }
        masks
    }
}
