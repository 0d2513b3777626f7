//! AVX2 versions of [`crate::idct::block`] and [`Reduction::block`], for two blocks at once, and of
//! [`crate::color::ycbcr`], with the same results on every input.
//!
//! Every function here is `#[inline(always)]`, into a function compiled for AVX2. `array::map` and its like are not
//! inlined that way, so this module avoids them.

use core::arch::x86_64::__m256i;

use pulp::cast;
use pulp::x86::V3;

use crate::color;
use crate::kernels::Two;
use crate::reduced::{Reduction, known};
use crate::zigzag::ZIGZAG;

/// Pairs of 16-bit factors, the first for even places.
#[inline(always)]
fn factors(simd: V3, first: i32, second: i32) -> __m256i {
    simd.avx._mm256_set1_epi32(second << 16 | first & 0xFFFF)
}

/// Sums of products of neighbours with a pair of factors.
#[inline(always)]
fn products(simd: V3, pair: __m256i, first: i32, second: i32) -> __m256i {
    simd.avx2._mm256_madd_epi16(pair, factors(simd, first, second))
}

/// (a0, b0, a1, b1, …), in the lower and upper half of each lane.
#[inline(always)]
fn interleave(simd: V3, a: __m256i, b: __m256i) -> [__m256i; 2] {
    [simd.avx2._mm256_unpacklo_epi16(a, b), simd.avx2._mm256_unpackhi_epi16(a, b)]
}

/// Interleaves as [`interleave`] does, in 32-bit steps.
#[inline(always)]
fn interleave32(simd: V3, a: __m256i, b: __m256i) -> [__m256i; 2] {
    [simd.avx2._mm256_unpacklo_epi32(a, b), simd.avx2._mm256_unpackhi_epi32(a, b)]
}

/// One row of quantized coefficients of two blocks, a lane each.
#[inline(always)]
fn row(simd: V3, two: Two<'_>, y: usize) -> __m256i {
    let [first, second] = two.coefficients;
    let lanes: [[i16; 8]; 2] = [first.as_chunks().0[y], second.as_chunks().0[y]];
    let factors: [[i16; 8]; 2] = [two.quantization.as_chunks().0[y]; 2];
    simd.avx2._mm256_mullo_epi16(cast(lanes), cast(factors))
}

/// One direction of the transform on eight columns of two blocks, a lane for each block: rows of 16-bit samples in, and
/// of 32-bit ones out, those of columns 0 to 3 first. Half of 2^`BITS`, by which they must be divided, is added.
#[inline(always)]
fn transform<const BITS: i32>(simd: V3, s: [__m256i; 8]) -> [[__m256i; 8]; 2] {
    let avx2 = simd.avx2;
    let outer = interleave(simd, avx2._mm256_add_epi16(s[0], s[4]), avx2._mm256_sub_epi16(s[0], s[4]));
    let inner = interleave(simd, s[2], s[6]);
    let sums = interleave(simd, avx2._mm256_add_epi16(s[7], s[3]), avx2._mm256_add_epi16(s[5], s[1]));
    let wide = interleave(simd, s[7], s[1]);
    let narrow = interleave(simd, s[5], s[3]);
    let half = simd.avx._mm256_set1_epi32(1 << (BITS - 1));
    let mut halves = [s; 2];
    for i in 0..2 {
        // The constants are those of `idct`; every product of the algorithm uses a sum or a difference of them.
        let even0 = avx2._mm256_add_epi32(products(simd, outer[i], 8192, 0), half);
        let even1 = avx2._mm256_add_epi32(products(simd, outer[i], 0, 8192), half);
        let even2 = products(simd, inner[i], 4433, 4433 - 15137);
        let even3 = products(simd, inner[i], 4433 + 6270, 4433);
        let even = [
            avx2._mm256_add_epi32(even0, even3),
            avx2._mm256_add_epi32(even1, even2),
            avx2._mm256_sub_epi32(even1, even2),
            avx2._mm256_sub_epi32(even0, even3),
        ];

        let z3 = products(simd, sums[i], 9633 - 16069, 9633);
        let z4 = products(simd, sums[i], 9633, 9633 - 3196);
        let odd = [
            avx2._mm256_add_epi32(products(simd, wide[i], -7373, 12299 - 7373), z4),
            avx2._mm256_add_epi32(products(simd, narrow[i], -20995, 25172 - 20995), z3),
            avx2._mm256_add_epi32(products(simd, narrow[i], 16819 - 20995, -20995), z4),
            avx2._mm256_add_epi32(products(simd, wide[i], 2446 - 7373, -7373), z3),
        ];
        for k in 0..4 {
            halves[i][k] = avx2._mm256_add_epi32(even[k], odd[k]);
            halves[i][7 - k] = avx2._mm256_sub_epi32(even[k], odd[k]);
        }
    }
    halves
}

/// Transposes each lane.
#[inline(always)]
fn transpose(simd: V3, r: [__m256i; 8]) -> [__m256i; 8] {
    let [a0, a4] = interleave(simd, r[0], r[1]);
    let [a1, a5] = interleave(simd, r[2], r[3]);
    let [a2, a6] = interleave(simd, r[4], r[5]);
    let [a3, a7] = interleave(simd, r[6], r[7]);
    let [b0, b2] = interleave32(simd, a0, a1);
    let [b1, b3] = interleave32(simd, a2, a3);
    let [b4, b6] = interleave32(simd, a4, a5);
    let [b5, b7] = interleave32(simd, a6, a7);
    let c0 = simd.avx2._mm256_unpacklo_epi64(b0, b1);
    let c1 = simd.avx2._mm256_unpackhi_epi64(b0, b1);
    let c2 = simd.avx2._mm256_unpacklo_epi64(b2, b3);
    let c3 = simd.avx2._mm256_unpackhi_epi64(b2, b3);
    let c4 = simd.avx2._mm256_unpacklo_epi64(b4, b5);
    let c5 = simd.avx2._mm256_unpackhi_epi64(b4, b5);
    let c6 = simd.avx2._mm256_unpacklo_epi64(b6, b7);
    let c7 = simd.avx2._mm256_unpackhi_epi64(b6, b7);
    [c0, c1, c2, c3, c4, c5, c6, c7]
}

#[inline(always)]
pub(crate) fn blocks(simd: V3, two: Two<'_>, samples: &mut [u8], stride: usize) {
    let mut rows = [simd.avx._mm256_setzero_si256(); 8];
    for (y, coefficients) in rows.iter_mut().enumerate() {
        *coefficients = row(simd, two, y);
    }
    let [low, high] = transform::<11>(simd, rows);
    for y in 0..8 {
        let low = simd.avx2._mm256_srai_epi32::<11>(low[y]);
        rows[y] = simd.avx2._mm256_packs_epi32(low, simd.avx2._mm256_srai_epi32::<11>(high[y]));
    }
    let [low, high] = transform::<18>(simd, transpose(simd, rows));
    // Divided by 2^18, all fit in 14 bits. The rows come in the order 0, 4, 1, 5, 2, 6, 3, 7.
    let mut columns = low;
    for x in 0..8 {
        let upper = simd.avx2._mm256_blend_epi16::<0xAA>(simd.avx2._mm256_srli_epi32::<16>(low[x]), high[x]);
        columns[x] = simd.avx2._mm256_srai_epi16::<2>(upper);
    }
    let rows = byte_transpose(simd, columns);
    let middle = simd.avx._mm256_set1_epi8(-128);
    // Blocks begin at multiples of their side, so that one comparison checks a place.
    let samples = samples.as_chunks_mut::<8>().0;
    let stride = stride / 8;
    let mut first = two.starts[0] / 8;
    let mut second = two.starts[1] / 8;
    for row in rows {
        let parts: [[u8; 8]; 4] = cast(simd.avx2._mm256_xor_si256(row, middle));
        for i in 0..2 {
            samples[first + i * 4 * stride] = parts[i];
            samples[second + i * 4 * stride] = parts[2 + i];
        }
        first += stride;
        second += stride;
    }
}

/// Two pairs of rows, clipped to 8 bits and interleaved.
#[inline(always)]
fn clipped_pairs(simd: V3, [a, b]: [__m256i; 2], [c, d]: [__m256i; 2]) -> [__m256i; 2] {
    let first = simd.avx2._mm256_packs_epi16(a, b);
    let second = simd.avx2._mm256_packs_epi16(c, d);
    [simd.avx2._mm256_unpacklo_epi8(first, second), simd.avx2._mm256_unpackhi_epi8(first, second)]
}

/// Transposes each lane, clipped to 8 bits; a lane of the result holds two rows.
#[inline(always)]
fn byte_transpose(simd: V3, c: [__m256i; 8]) -> [__m256i; 4] {
    let [a0, a2] = clipped_pairs(simd, [c[0], c[4]], [c[1], c[5]]);
    let [a1, a3] = clipped_pairs(simd, [c[2], c[6]], [c[3], c[7]]);
    let [b0, b2] = interleave(simd, a0, a1);
    let [b1, b3] = interleave(simd, a2, a3);
    let [r0, r1] = interleave32(simd, b0, b1);
    let [r2, r3] = interleave32(simd, b2, b3);
    [r0, r1, r2, r3]
}

#[inline(always)]
pub(crate) fn reduced_blocks(simd: V3, reduction: &Reduction, two: Two<'_>, samples: &mut [u8], stride: usize) {
    match (reduction.side, reduction.count) {
        (2, 2) => reduced::<2, 2>(simd, two, samples, stride),
        (2, _) => reduced::<2, 5>(simd, two, samples, stride),
        (3, _) => reduced::<3, 3>(simd, two, samples, stride),
        (4, 4) => reduced::<4, 4>(simd, two, samples, stride),
        (4, _) => reduced::<4, 7>(simd, two, samples, stride),
        (6, _) => six(simd, two, samples, stride),
        // A single sample.
        _ => {
            for (coefficients, start) in two.coefficients.into_iter().zip(two.starts) {
                reduction.block(coefficients, two.quantization, &mut samples[start..], stride);
            }
        }
    }
}

/// A transform to at most four samples.
#[inline(always)]
fn reduced<const SIDE: usize, const COUNT: usize>(simd: V3, two: Two<'_>, samples: &mut [u8], stride: usize) {
    let zero = simd.avx._mm256_setzero_si256();
    let [first_bits, second_bits] = known::<SIDE, COUNT>().bits();
    let [low, high] = first_pass::<SIDE, COUNT>(simd, two, first_bits);
    let mut rows = [zero; 4];
    for (row, (low, high)) in rows.iter_mut().zip(low.into_iter().zip(high)) {
        *row = simd.avx2._mm256_packs_epi32(low, high);
    }
    // Two columns in each half lane.
    let upper = interleave(simd, rows[0], rows[1]);
    let lower = interleave(simd, rows[2], rows[3]);
    let mut columns = [zero; 4];
    for i in 0..2 {
        columns[2 * i] = simd.avx2._mm256_unpacklo_epi32(upper[i], lower[i]);
        columns[2 * i + 1] = simd.avx2._mm256_unpackhi_epi32(upper[i], lower[i]);
    }
    let [sums, _] = reduced_pass::<SIDE, COUNT>(
        simd,
        |a, b, kind| {
            let a = if let Some(x) = a { columns[x / 2] } else { zero };
            let b = if let Some(x) = b { columns[x / 2] } else { zero };
            [interleave(simd, a, b)[kind], zero]
        },
        second_bits,
    );
    let mut columns = [zero; 4];
    for (column, &sum) in columns.iter_mut().zip(&sums) {
        *column = sum;
    }
    let first = simd.avx2._mm256_packs_epi32(columns[0], columns[1]);
    let signed = simd.avx2._mm256_packs_epi16(first, simd.avx2._mm256_packs_epi32(columns[2], columns[3]));
    let order: [[i8; 16]; 2] = [[0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15]; 2];
    let rows = simd.avx2._mm256_shuffle_epi8(signed, cast(order));
    let rows: [[[u8; 4]; 4]; 2] = cast(simd.avx2._mm256_xor_si256(rows, simd.avx._mm256_set1_epi8(-128)));
    if SIDE == 4 {
        // Blocks begin at multiples of their side, so that one comparison checks a place.
        let samples = samples.as_chunks_mut().0;
        let stride = stride / 4;
        let mut first = two.starts[0] / 4;
        let mut second = two.starts[1] / 4;
        let [rows, others] = rows;
        for (row, other) in rows.into_iter().zip(others) {
            samples[first] = row;
            samples[second] = other;
            first += stride;
            second += stride;
        }
        return;
    }
    for (start, rows) in two.starts.iter().zip(&rows) {
        for (y, row) in rows.iter().enumerate().take(SIDE) {
            samples[start + y * stride..][..SIDE].copy_from_slice(&row[..SIDE]);
        }
    }
}

/// The transform to six samples.
#[inline(always)]
fn six(simd: V3, two: Two<'_>, samples: &mut [u8], stride: usize) {
    let zero = simd.avx._mm256_setzero_si256();
    let [first_bits, second_bits] = known::<6, 6>().bits();
    let columns = six_transposed(simd, first_pass::<6, 6>(simd, two, first_bits));
    let sums = reduced_pass::<6, 6>(
        simd,
        |a, b, _| {
            let a = if let Some(x) = a { columns[x] } else { zero };
            let b = if let Some(x) = b { columns[x] } else { zero };
            interleave(simd, a, b)
        },
        second_bits,
    );
    let rows = six_transposed(simd, sums);
    for (y, &row) in rows[..6].iter().enumerate() {
        let signed = simd.avx2._mm256_packs_epi16(row, zero);
        let bytes: [[u8; 16]; 2] = cast(simd.avx2._mm256_xor_si256(signed, simd.avx._mm256_set1_epi8(-128)));
        for (start, bytes) in two.starts.iter().zip(&bytes) {
            samples[start + y * stride..][..6].copy_from_slice(&bytes[..6]);
        }
    }
}

/// Six rows in halves, transposed.
#[inline(always)]
fn six_transposed(simd: V3, [low, high]: [[__m256i; 6]; 2]) -> [__m256i; 8] {
    let mut rows = [simd.avx._mm256_setzero_si256(); 8];
    for (row, (low, high)) in rows.iter_mut().zip(low.into_iter().zip(high)) {
        *row = simd.avx2._mm256_packs_epi32(low, high);
    }
    transpose(simd, rows)
}

/// The columns of a reduced transform, of the coefficients' columns 0 to 3 first.
#[inline(always)]
fn first_pass<const SIDE: usize, const COUNT: usize>(simd: V3, two: Two<'_>, bits: u32) -> [[__m256i; SIDE]; 2] {
    let zero = simd.avx._mm256_setzero_si256();
    reduced_pass::<SIDE, COUNT>(
        simd,
        |a, b, _| {
            let a = if let Some(y) = a { row(simd, two, y) } else { zero };
            let b = if let Some(y) = b { row(simd, two, y) } else { zero };
            interleave(simd, a, b)
        },
        bits,
    )
}

/// The places of the even frequencies behind the first, and of the odd ones, two by two.
const fn pairs(reduction: &Reduction) -> [[[Option<usize>; 2]; 2]; 2] {
    let mut pairs = [[[None; 2]; 2]; 2];
    let mut counts = [0; 2];
    let mut k = 1;
    while k < reduction.count {
        let kind = reduction.frequencies[k] % 2;
        pairs[kind][counts[kind] / 2][counts[kind] % 2] = Some(k);
        counts[kind] += 1;
        k += 1;
    }
    pairs
}

/// One direction of a reduced transform, divided by 2^`bits` with rounding. `pair` returns the values of two
/// frequencies that are both even, kind 0, or both odd, alternately, and zeros in place of `None`; in two halves.
#[inline(always)]
fn reduced_pass<const SIDE: usize, const COUNT: usize>(
    simd: V3,
    pair: impl Fn(Option<usize>, Option<usize>, usize) -> [__m256i; 2],
    bits: u32,
) -> [[__m256i; SIDE]; 2] {
    let reduction = known::<SIDE, COUNT>();
    let pairs = const { pairs(known::<SIDE, COUNT>()) };
    let avx2 = simd.avx2;
    let shift = simd.sse2._mm_cvtsi32_si128(bits as i32);
    let first_shift = simd.sse2._mm_cvtsi32_si128(16 - reduction.scale_bits() as i32);
    let zero = simd.avx._mm256_setzero_si256();
    let mut sums = [[zero; SIDE]; 2];
    // The first frequency's factor, a power of two, may exceed 16 bits.
    let first = pair(None, Some(0), 0);
    for half in 0..2 {
        let first = avx2._mm256_sra_epi32(first[half], first_shift);
        let first = avx2._mm256_add_epi32(first, simd.avx._mm256_set1_epi32(1 << (bits - 1)));
        for i in 0..SIDE.div_ceil(2) {
            // The second half of the samples mirrors the first one, with the odd frequencies' sign changed.
            let mut parts = [first, zero];
            for kind in 0..2 {
                for places in pairs[kind] {
                    let (a, b, factors) = match places {
                        [Some(a), Some(b)] => {
                            (a, Some(reduction.frequencies[b]), [reduction.factors[a][i], reduction.factors[b][i]])
                        }
                        [Some(a), None] => (a, None, [reduction.factors[a][i], 0]),
                        _ => continue,
                    };
                    let factors = simd.avx._mm256_set1_epi32(cast(factors));
                    let values = pair(Some(reduction.frequencies[a]), b, kind);
                    parts[kind] = avx2._mm256_add_epi32(parts[kind], avx2._mm256_madd_epi16(values[half], factors));
                }
            }
            let [even, odd] = parts;
            sums[half][i] = avx2._mm256_sra_epi32(avx2._mm256_add_epi32(even, odd), shift);
            sums[half][SIDE - 1 - i] = avx2._mm256_sra_epi32(avx2._mm256_sub_epi32(even, odd), shift);
        }
    }
    sums
}

/// For each 16 coefficients in natural order: the byte with each one's bit among the 64 in coding order, and that bit.
const BITS: [([[i8; 2]; 16], [i16; 16]); 4] = {
    let mut bits = [([[-1; 2]; 16], [0; 16]); 4];
    let mut k = 0;
    while k < 64 {
        let natural = ZIGZAG[k] as usize;
        bits[natural / 16].0[natural % 16][0] = (k / 8) as i8;
        bits[natural / 16].1[natural % 16] = 1 << (k % 8);
        k += 1;
    }
    bits
};

/// All ones in the lanes of the coefficients whose bits are set.
#[inline(always)]
fn contained(simd: V3, set: __m256i, bytes: [[i8; 2]; 16], bits: [i16; 16]) -> __m256i {
    let moved = simd.avx2._mm256_shuffle_epi8(set, cast(bytes));
    simd.avx2._mm256_cmpeq_epi16(simd.avx2._mm256_and_si256(moved, cast(bits)), cast(bits))
}

#[inline(always)]
pub(crate) fn refine(simd: V3, coefficients: &mut [i16; 64], ones: u64, negative: u64, bit: i16) {
    let bit = simd.avx._mm256_set1_epi16(bit);
    let ones = simd.avx._mm256_set1_epi64x(ones as i64);
    let negative = simd.avx._mm256_set1_epi64x(negative as i64);
    for (coefficients, (bytes, bits)) in coefficients.as_chunks_mut::<16>().0.iter_mut().zip(BITS) {
        let old: __m256i = cast(*coefficients);
        let sign =
            simd.avx2._mm256_or_si256(simd.avx2._mm256_srai_epi16::<15>(old), contained(simd, negative, bytes, bits));
        let step =
            simd.avx2._mm256_andnot_si256(old, simd.avx2._mm256_and_si256(contained(simd, ones, bytes, bits), bit));
        let step = simd.avx2._mm256_sub_epi16(simd.avx2._mm256_xor_si256(step, sign), sign);
        *coefficients = cast(simd.avx2._mm256_add_epi16(old, step));
    }
}

/// Pixels converted at once.
const GROUP: usize = 32;

/// For each of the three 16-byte parts of 16 interleaved pixels: the index of each byte's source in each channel.
const PLACES: [[[i8; 16]; 3]; 3] = {
    let mut places = [[[-1; 16]; 3]; 3];
    let mut i = 0;
    while i < 48 {
        places[i / 16][i % 3][i % 16] = (i / 3) as i8;
        i += 1;
    }
    places
};

#[inline(always)]
pub(crate) fn ycbcr(simd: V3, [y, cb, cr]: [&[u8]; 3], out: &mut [[u8; 3]]) {
    let n = out.len();
    let (groups, rest) = out.as_chunks_mut::<GROUP>();
    let sources = y.as_chunks::<GROUP>().0.iter().zip(cb.as_chunks::<GROUP>().0).zip(cr.as_chunks::<GROUP>().0);
    for (pixels, ((y, cb), cr)) in groups.iter_mut().zip(sources) {
        let channels = rgb(simd, y, cb, cr);
        // Each lane holds 16 pixels.
        let a = interleaved(simd, channels, PLACES[0]);
        let b = interleaved(simd, channels, PLACES[1]);
        let c = interleaved(simd, channels, PLACES[2]);
        *pixels = cast([
            simd.avx2._mm256_permute2x128_si256::<0x20>(a, b),
            simd.avx2._mm256_permute2x128_si256::<0x30>(c, a),
            simd.avx2._mm256_permute2x128_si256::<0x31>(b, c),
        ]);
    }
    let done = n - rest.len();
    color::ycbcr([&y[done..n], &cb[done..n], &cr[done..n]], rest);
}

/// 32 samples as 16-bit numbers, 8 of each lane in either half.
#[inline(always)]
fn words(simd: V3, samples: &[u8; GROUP]) -> [__m256i; 2] {
    let zero = simd.avx._mm256_setzero_si256();
    let bytes = cast(*samples);
    [simd.avx2._mm256_unpacklo_epi8(bytes, zero), simd.avx2._mm256_unpackhi_epi8(bytes, zero)]
}

/// (x - 128) * factor / 2^14, rounded.
#[inline(always)]
fn scaled(simd: V3, x: __m256i, factor: i16) -> __m256i {
    let doubled = simd.avx2._mm256_add_epi16(simd.avx2._mm256_add_epi16(x, x), simd.avx._mm256_set1_epi16(-256));
    simd.avx2._mm256_mulhrs_epi16(doubled, simd.avx._mm256_set1_epi16(factor))
}

/// The part of interleaved blue and red differences in green, but for one difference of red.
#[inline(always)]
fn green_part(simd: V3, pair: __m256i) -> __m256i {
    // -0.71414 = 0.28586 - 1.
    const LEVEL: i32 = 128 * (22554 - 18734) + (128 << 16) + (1 << 15);
    let sum = products(simd, pair, -22554, 18734);
    simd.avx2._mm256_srai_epi32::<16>(simd.avx2._mm256_add_epi32(sum, simd.avx._mm256_set1_epi32(LEVEL)))
}

/// 32 pixels' channels. The factors of red and blue are those with which every product of 16 bits rounds as with 16
/// fraction bits.
#[inline(always)]
fn rgb(simd: V3, y: &[u8; GROUP], cb: &[u8; GROUP], cr: &[u8; GROUP]) -> [__m256i; 3] {
    let zero = simd.avx._mm256_setzero_si256();
    let y = words(simd, y);
    let cb = words(simd, cb);
    let cr = words(simd, cr);
    let mut channels = [[zero; 2]; 3];
    for i in 0..2 {
        let y = y[i];
        let cb = cb[i];
        let cr = cr[i];
        channels[0][i] = simd.avx2._mm256_add_epi16(y, scaled(simd, cr, 22971));
        let [low, high] = interleave(simd, cb, cr);
        let green = simd.avx2._mm256_packs_epi32(green_part(simd, low), green_part(simd, high));
        channels[1][i] = simd.avx2._mm256_sub_epi16(simd.avx2._mm256_add_epi16(y, green), cr);
        channels[2][i] = simd.avx2._mm256_add_epi16(y, scaled(simd, cb, 29033));
    }
    let [r, g, b] = channels;
    [
        simd.avx2._mm256_packus_epi16(r[0], r[1]),
        simd.avx2._mm256_packus_epi16(g[0], g[1]),
        simd.avx2._mm256_packus_epi16(b[0], b[1]),
    ]
}

/// One part of each lane's interleaved pixels.
#[inline(always)]
fn interleaved(simd: V3, [r, g, b]: [__m256i; 3], places: [[i8; 16]; 3]) -> __m256i {
    let r = simd.avx2._mm256_shuffle_epi8(r, cast([places[0]; 2]));
    let g = simd.avx2._mm256_shuffle_epi8(g, cast([places[1]; 2]));
    let b = simd.avx2._mm256_shuffle_epi8(b, cast([places[2]; 2]));
    simd.avx2._mm256_or_si256(simd.avx2._mm256_or_si256(r, g), b)
}
