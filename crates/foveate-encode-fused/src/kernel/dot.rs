//! Tiles of products in fewer bits: each word of an input row times a panel's words, summed in f32 or in i32.
//!
//! bf16: a word's high product is added before its low one, each with one rounding, as `vdpbf16ps` does. Processors
//! with fused multiply-add therefore give the same bits without that instruction.
//!
//! 8-bit integers: sums are exact, so that every processor gives the same bits.

use pulp::Simd;

use crate::kernel::words::WordFormat;
use crate::kernel::{MAX_LANES, MAX_TILE_VECTORS, rows_of, store_tile};

/// The unit that multiplies pairs of bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bf16Unit {
    /// `vdpbf16ps`.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// Two fused multiply-adds.
    Fused,
}

/// The unit that multiplies 8-bit integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum I8Unit {
    /// `vpdpbusd` on 512 bits.
    #[cfg(target_arch = "x86_64")]
    Vnni,
    /// `vpmaddwd` on 512 bits.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// `vpmaddwd` on 256 bits.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Plain integers.
    Scalar,
}

impl Bf16Unit {
    /// Multiplies `MR` rows of `x`, `ld` words apart, by a panel of `NV` vectors, into rows of `out` that are `stride`
    /// apart.
    #[inline(always)]
    pub(crate) fn tile<S: Simd, const MR: usize, const NV: usize>(
        self,
        simd: S,
        x: &[u32],
        ld: usize,
        panel: &[u32],
        out: &mut [f32],
        stride: usize,
    ) {
        match self {
            // SAFETY: the unit is chosen on processors that have the instructions.
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)]
            Self::Avx512 => unsafe { x86::bf16_rows::<MR, NV>(x, ld, panel, out, stride) },
            Self::Fused => {
                let depth = panel.len() / (NV * S::F32_LANES);
                let rows = rows_of::<_, MR>(x, ld, depth);
                let (panel, _) = S::as_simd_u32s(panel);
                let (panel, _) = panel.as_chunks::<NV>();
                let mut sums = [[simd.splat_f32s(0.0); NV]; MR];
                let panel = &panel[..depth];
                for k in 0..depth {
                    let mut words = [0; MR];
                    for i in 0..MR {
                        words[i] = rows[i][k];
                    }
                    fused_step(simd, &mut sums, &panel[k], &words);
                }
                store_tile::<S, MR, NV>(out, stride, &sums);
            }
        }
    }

    /// Multiplies `MR` columns of `x`, whose rows are `x_row` words apart, by `NV` vectors of columns of `w`, whose
    /// rows are `w_row` words apart. Adds to rows of `out` that are side by side.
    #[inline(always)]
    pub(crate) fn columns<S: Simd, const MR: usize, const NV: usize>(
        self,
        simd: S,
        x: &[u32],
        x_row: usize,
        w: &[u32],
        w_row: usize,
        out: &mut [f32],
    ) {
        let stride = NV * S::F32_LANES;
        match self {
            // SAFETY: the unit is chosen on processors that have the instructions.
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)]
            Self::Avx512 => unsafe { x86::bf16_columns::<MR, NV>(x, x_row, w, w_row, out) },
            Self::Fused => {
                let mut sums = [[simd.splat_f32s(0.0); NV]; MR];
                for (sums, out) in sums.iter_mut().zip(out.chunks_exact(stride)) {
                    sums.copy_from_slice(S::as_simd_f32s(out).0);
                }
                for (x, w) in x.chunks(x_row).zip(w.chunks(w_row)) {
                    let (w, _) = S::as_simd_u32s(&w[..stride]);
                    let w = w.first_chunk().expect("NV vectors");
                    let x = x.first_chunk().expect("MR columns");
                    fused_step(simd, &mut sums, w, x);
                }
                store_tile::<S, MR, NV>(out, stride, &sums);
            }
        }
    }
}

/// Adds the products of one word of each row.
#[inline(always)]
fn fused_step<S: Simd, const MR: usize, const NV: usize>(
    simd: S,
    sums: &mut [[S::f32s; NV]; MR],
    weights: &[S::u32s; NV],
    words: &[u32; MR],
) {
    const HIGH: u32 = 0xffff_0000;
    for j in 0..NV {
        let high_weight = simd.transmute_f32s_u32s(simd.and_u32s(weights[j], simd.splat_u32s(HIGH)));
        let low_weight = simd.transmute_f32s_u32s(simd.wrapping_dyn_shl_u32s(weights[j], simd.splat_u32s(16)));
        for i in 0..MR {
            let high = simd.splat_f32s(f32::from_bits(words[i] & HIGH));
            let low = simd.splat_f32s(f32::from_bits(words[i] << 16));
            sums[i][j] = simd.mul_add_e_f32s(high, high_weight, sums[i][j]);
            sums[i][j] = simd.mul_add_e_f32s(low, low_weight, sums[i][j]);
        }
    }
}

impl I8Unit {
    /// The format of rows and weights.
    pub(crate) const fn format(self) -> WordFormat {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => WordFormat::I8,
            _ => WordFormat::I16,
        }
    }

    /// Multiplies `MR` rows of `x`, `ld` words apart, by a panel of `NV` vectors: `Σ (x − zero) · weight`, into rows of
    /// `out` that are side by side. `sums` are the panel's `Σ weight`.
    #[inline(always)]
    pub(crate) fn tile<S: Simd, const MR: usize, const NV: usize>(
        self,
        x: &[u32],
        ld: usize,
        panel: &[u32],
        zeros: &[i32; MR],
        sums: &[i32],
        out: &mut [f32],
    ) {
        match self {
            // SAFETY: the units are chosen on processors that have their instructions.
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)]
            Self::Vnni => unsafe { x86::vnni_rows::<MR, NV>(x, ld, panel, zeros, sums, out) },
            // SAFETY: likewise.
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)]
            Self::Avx512 => unsafe { x86::madd512_rows::<MR, NV>(x, ld, panel, zeros, sums, out) },
            // SAFETY: likewise.
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)]
            Self::Avx2 => unsafe { x86::madd256_rows::<MR, NV>(x, ld, panel, zeros, sums, out) },
            Self::Scalar => scalar_rows::<MR>(x, ld, panel, zeros, &sums[..NV * S::F32_LANES], out),
        }
    }
}

/// The two 16-bit integers of a word.
#[inline(always)]
fn halves(word: u32) -> [i32; 2] {
    [i32::from(word as i16), i32::from((word >> 16) as i16)]
}

fn scalar_rows<const MR: usize>(x: &[u32], ld: usize, panel: &[u32], zeros: &[i32; MR], sums: &[i32], out: &mut [f32]) {
    let width = sums.len();
    for (i, (zero, out)) in zeros.iter().zip(out.chunks_exact_mut(width)).enumerate() {
        let mut totals = [0i32; MAX_LANES * MAX_TILE_VECTORS];
        for (&x, weights) in x[i * ld..].iter().zip(panel.chunks_exact(width)) {
            let [low, high] = halves(x);
            for (total, &weights) in totals.iter_mut().zip(weights) {
                let [low_weight, high_weight] = halves(weights);
                *total += low * low_weight + high * high_weight;
            }
        }
        for ((out, total), sum) in out.iter_mut().zip(totals).zip(sums) {
            *out = (total - zero * sum) as f32;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use pulp::cast;

    use crate::kernel::rows_of;

    /// Defines a tile of integer products.
    macro_rules! integer_rows {
        ($name:ident, $features:literal, $vector:ty, $lanes:literal, $splat:path, $dot:expr, $multiply:path,
         $float:path) => {
            #[target_feature(enable = $features)]
            pub(super) fn $name<const MR: usize, const NV: usize>(
                x: &[u32],
                ld: usize,
                panel: &[u32],
                zeros: &[i32; MR],
                sums: &[i32],
                out: &mut [f32],
            ) {
                let (panel, _) = panel.as_chunks::<$lanes>();
                let (panel, _) = panel.as_chunks::<NV>();
                let depth = panel.len();
                let rows = rows_of::<_, MR>(x, ld, depth);
                let (sums, _) = sums.as_chunks::<$lanes>();
                let sums: &[[i32; $lanes]; NV] = sums.first_chunk().expect("NV vectors");
                let mut totals = [[$splat(0); NV]; MR];
                for i in 0..MR {
                    for j in 0..NV {
                        totals[i][j] =
                            $multiply($splat(zeros[i].wrapping_neg()), cast::<[i32; $lanes], $vector>(sums[j]));
                    }
                }
                for k in 0..depth {
                    let weights = panel[k].map(|words| cast::<[u32; $lanes], $vector>(words));
                    for i in 0..MR {
                        let x = $splat(rows[i][k] as i32);
                        for j in 0..NV {
                            totals[i][j] = $dot(totals[i][j], x, weights[j]);
                        }
                    }
                }
                let (out, _) = out.as_chunks_mut::<$lanes>();
                let (out, _) = out.as_chunks_mut::<NV>();
                let out: &mut [[[f32; $lanes]; NV]; MR] = out.first_chunk_mut().expect("MR rows");
                for i in 0..MR {
                    out[i] = totals[i].map(|total| cast($float(total)));
                }
            }
        };
    }

    integer_rows!(
        vnni_rows,
        "avx512f,avx512bw,avx512vnni",
        __m512i,
        16,
        _mm512_set1_epi32,
        _mm512_dpbusd_epi32,
        _mm512_mullo_epi32,
        _mm512_cvtepi32_ps
    );
    integer_rows!(
        madd512_rows,
        "avx512f,avx512bw",
        __m512i,
        16,
        _mm512_set1_epi32,
        |total, x, w| _mm512_add_epi32(total, _mm512_madd_epi16(x, w)),
        _mm512_mullo_epi32,
        _mm512_cvtepi32_ps
    );
    integer_rows!(
        madd256_rows,
        "avx,avx2",
        __m256i,
        8,
        _mm256_set1_epi32,
        |total, x, w| _mm256_add_epi32(total, _mm256_madd_epi16(x, w)),
        _mm256_mullo_epi32,
        _mm256_cvtepi32_ps
    );

    /// [`Bf16Unit::tile`](super::Bf16Unit::tile).
    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(super) fn bf16_rows<const MR: usize, const NV: usize>(
        x: &[u32],
        ld: usize,
        panel: &[u32],
        out: &mut [f32],
        stride: usize,
    ) {
        let (panel, _) = panel.as_chunks::<16>();
        let (panel, _) = panel.as_chunks::<NV>();
        let depth = panel.len();
        let rows = rows_of::<_, MR>(x, ld, depth);
        let mut sums = [[_mm512_setzero_ps(); NV]; MR];
        for k in 0..depth {
            let weights = panel[k].map(pairs);
            for i in 0..MR {
                let x = pairs([rows[i][k]; 16]);
                for j in 0..NV {
                    sums[i][j] = _mm512_dpbf16_ps(sums[i][j], x, weights[j]);
                }
            }
        }
        for (i, sums) in sums.into_iter().enumerate() {
            let (out, _) = out[i * stride..][..NV * 16].as_chunks_mut::<16>();
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out = cast(sum));
        }
    }

    /// [`Bf16Unit::columns`](super::Bf16Unit::columns).
    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(super) fn bf16_columns<const MR: usize, const NV: usize>(
        x: &[u32],
        x_row: usize,
        w: &[u32],
        w_row: usize,
        out: &mut [f32],
    ) {
        let (out, _) = out.as_chunks_mut::<16>();
        let (out, _) = out.as_chunks_mut::<NV>();
        let out: &mut [[[f32; 16]; NV]; MR] = out.first_chunk_mut().expect("MR rows");
        let mut sums = out.map(|row| row.map(cast::<[f32; 16], __m512>));
        for (x, w) in x.chunks(x_row).zip(w.chunks(w_row)) {
            let x: &[u32; MR] = x.first_chunk().expect("MR columns");
            let (w, _) = w.as_chunks::<16>();
            let w: &[[u32; 16]; NV] = w.first_chunk().expect("NV vectors");
            // Indices, because iterators over the sums keep them in memory.
            for i in 0..MR {
                let x = pairs([x[i]; 16]);
                for j in 0..NV {
                    sums[i][j] = _mm512_dpbf16_ps(sums[i][j], x, pairs(w[j]));
                }
            }
        }
        for i in 0..MR {
            out[i] = sums[i].map(cast);
        }
    }

    #[inline(always)]
    fn pairs(words: [u32; 16]) -> __m512bh {
        cast(words)
    }
}
