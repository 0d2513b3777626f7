//! NEON versions of [`crate::idct::block`] and [`Reduction::block`], and of [`crate::color::ycbcr`], with the same
//! results on every input.
//!
//! Every function here is `#[inline(always)]`: the token's methods are, and NEON is part of the compile target.

use core::arch::aarch64::{int8x16_t, int16x8_t, int32x4_t, uint8x16_t};
use core::array::from_fn;
use core::hint::black_box;

use pulp::aarch64::Neon;
use pulp::cast;

use crate::color;
use crate::kernels::Two;
use crate::reduced::{Reduction, known};

/// One row of a block's quantized coefficients.
#[inline(always)]
fn row(simd: Neon, coefficients: &[i16; 64], quantization: &[i16; 64], y: usize) -> int16x8_t {
    let coefficients = coefficients.as_chunks::<8>().0[y];
    let quantization = quantization.as_chunks::<8>().0[y];
    simd.neon.vmulq_s16(cast(coefficients), cast(quantization))
}

/// The transform's factors: its constants are those of `idct`, and every product uses a sum or a difference of them.
static FACTORS: [[i16; 8]; 2] = [
    [4433, 4433 - 15137, 4433 + 6270, 9633 - 16069, 9633, 9633 - 3196, 0, 0],
    [-7373, 12299 - 7373, -20995, 25172 - 20995, 16819 - 20995, 2446 - 7373, 0, 0],
];

/// Products with the factor in one lane.
#[inline(always)]
fn times<const LANE: i32>(simd: Neon, x: int16x8_t, factors: int16x8_t) -> [int32x4_t; 2] {
    let low = simd.neon.vmull_laneq_s16::<LANE>(simd.neon.vget_low_s16(x), factors);
    [low, simd.neon.vmull_high_laneq_s16::<LANE>(x, factors)]
}

/// Adds products with the factor in one lane.
#[inline(always)]
fn plus<const LANE: i32>(simd: Neon, sums: [int32x4_t; 2], x: int16x8_t, factors: int16x8_t) -> [int32x4_t; 2] {
    let low = simd.neon.vmlal_laneq_s16::<LANE>(sums[0], simd.neon.vget_low_s16(x), factors);
    [low, simd.neon.vmlal_high_laneq_s16::<LANE>(sums[1], x, factors)]
}

/// The even and odd parts of the transform's outputs, of lanes 0 to 3 and of lanes 4 to 7: output k is the sum of both
/// parts k, output 7 - k their difference. Half of 2^`BITS`, by which outputs must be divided, is added.
#[inline(always)]
fn transform<const BITS: i32>(simd: Neon, [f, g]: [int16x8_t; 2], s: [int16x8_t; 8]) -> [[[int32x4_t; 4]; 2]; 2] {
    let neon = simd.neon;
    let sum = neon.vaddq_s16(s[0], s[4]);
    let difference = neon.vsubq_s16(s[0], s[4]);
    let even0 = [neon.vshll_n_s16::<13>(neon.vget_low_s16(sum)), neon.vshll_high_n_s16::<13>(sum)];
    let even1 = [neon.vshll_n_s16::<13>(neon.vget_low_s16(difference)), neon.vshll_high_n_s16::<13>(difference)];
    let even2 = plus::<1>(simd, times::<0>(simd, s[2], f), s[6], f);
    let even3 = plus::<0>(simd, times::<2>(simd, s[2], f), s[6], f);

    let sum3 = neon.vaddq_s16(s[7], s[3]);
    let sum4 = neon.vaddq_s16(s[5], s[1]);
    let z3 = plus::<4>(simd, times::<3>(simd, sum3, f), sum4, f);
    let z4 = plus::<5>(simd, times::<4>(simd, sum3, f), sum4, f);
    let odd0 = plus::<1>(simd, plus::<0>(simd, z4, s[7], g), s[1], g);
    let odd1 = plus::<3>(simd, plus::<2>(simd, z3, s[5], g), s[3], g);
    let odd2 = plus::<2>(simd, plus::<4>(simd, z4, s[5], g), s[3], g);
    let odd3 = plus::<0>(simd, plus::<5>(simd, z3, s[7], g), s[1], g);

    let half = neon.vdupq_n_s32(1 << (BITS - 1));
    let mut parts = [[[half; 4]; 2]; 2];
    for i in 0..2 {
        let even0 = neon.vaddq_s32(even0[i], half);
        let even1 = neon.vaddq_s32(even1[i], half);
        let even = [
            neon.vaddq_s32(even0, even3[i]),
            neon.vaddq_s32(even1, even2[i]),
            neon.vsubq_s32(even1, even2[i]),
            neon.vsubq_s32(even0, even3[i]),
        ];
        parts[i] = [even, [odd0[i], odd1[i], odd2[i], odd3[i]]];
    }
    parts
}

/// Transposes eight rows. Each round rotates a lane's address, three bits of row and three of lane, by one bit.
#[inline(always)]
fn transpose(simd: Neon, mut rows: [int16x8_t; 8]) -> [int16x8_t; 8] {
    for _ in 0..3 {
        let old = rows;
        for i in 0..4 {
            rows[2 * i] = simd.neon.vzip1q_s16(old[i], old[i + 4]);
            rows[2 * i + 1] = simd.neon.vzip2q_s16(old[i], old[i + 4]);
        }
    }
    rows
}

/// Transposes eight columns of bytes, two in each vector, in the same way.
#[inline(always)]
fn byte_transpose(simd: Neon, mut pairs: [int8x16_t; 4]) -> [int8x16_t; 4] {
    for _ in 0..3 {
        let old = pairs;
        for i in 0..2 {
            pairs[2 * i] = simd.neon.vzip1q_s8(old[i], old[i + 2]);
            pairs[2 * i + 1] = simd.neon.vzip2q_s8(old[i], old[i + 2]);
        }
    }
    pairs
}

#[inline(always)]
pub(crate) fn blocks(simd: Neon, two: Two<'_>, samples: &mut [u8], stride: usize) {
    // As known constants, each factor would take two instructions and a register.
    let factors = cast(*black_box(&FACTORS));
    // Blocks begin at multiples of their side, so that one comparison checks a place.
    let samples = samples.as_chunks_mut::<8>().0;
    let stride = stride / 8;
    for (coefficients, start) in two.coefficients.into_iter().zip(two.starts) {
        let pairs: [[[u8; 8]; 2]; 4] = cast(block(simd, coefficients, two.quantization, factors));
        for (y, row) in pairs.as_flattened().iter().enumerate() {
            samples[start / 8 + y * stride] = *row;
        }
    }
}

/// A block's samples, two rows in each vector.
#[inline(always)]
fn block(simd: Neon, coefficients: &[i16; 64], quantization: &[i16; 64], factors: [int16x8_t; 2]) -> [uint8x16_t; 4] {
    let neon = simd.neon;
    let mut rows = from_fn(|y| row(simd, coefficients, quantization, y));
    let [[even, odd], [high_even, high_odd]] = transform::<11>(simd, factors, rows);
    for k in 0..4 {
        let low = neon.vqshrn_n_s32::<11>(neon.vaddq_s32(even[k], odd[k]));
        rows[k] = neon.vqshrn_high_n_s32::<11>(low, neon.vaddq_s32(high_even[k], high_odd[k]));
        let low = neon.vqshrn_n_s32::<11>(neon.vsubq_s32(even[k], odd[k]));
        rows[7 - k] = neon.vqshrn_high_n_s32::<11>(low, neon.vsubq_s32(high_even[k], high_odd[k]));
    }
    // Only the upper 16 bits count. Divided by 2^18, all fit in 14 bits.
    let [[even, odd], [high_even, high_odd]] = transform::<18>(simd, factors, transpose(simd, rows));
    let mut columns = rows;
    for k in 0..4 {
        columns[k] = neon.vaddhn_high_s32(neon.vaddhn_s32(even[k], odd[k]), high_even[k], high_odd[k]);
        columns[7 - k] = neon.vsubhn_high_s32(neon.vsubhn_s32(even[k], odd[k]), high_even[k], high_odd[k]);
    }
    let pairs = from_fn(|i| {
        let first = neon.vqshrn_n_s16::<2>(columns[2 * i]);
        neon.vqshrn_high_n_s16::<2>(first, columns[2 * i + 1])
    });
    let rows = byte_transpose(simd, pairs);
    rows.map(|rows| neon.veorq_u8(cast(rows), neon.vdupq_n_u8(128)))
}

/// Transposes each half of four rows.
#[inline(always)]
fn transpose_halves(simd: Neon, [a, b, c, d]: [int16x8_t; 4]) -> [int16x8_t; 4] {
    let neon = simd.neon;
    let ab = [neon.vtrn1q_s16(a, b), neon.vtrn2q_s16(a, b)];
    let cd = [neon.vtrn1q_s16(c, d), neon.vtrn2q_s16(c, d)];
    let mut columns = [a; 4];
    for i in 0..2 {
        columns[i] = cast(neon.vtrn1q_s32(cast(ab[i]), cast(cd[i])));
        columns[i + 2] = cast(neon.vtrn2q_s32(cast(ab[i]), cast(cd[i])));
    }
    columns
}

#[inline(always)]
pub(crate) fn reduced_blocks(simd: Neon, reduction: &Reduction, two: Two<'_>, samples: &mut [u8], stride: usize) {
    match (reduction.side, reduction.count) {
        (2, 2) => reduced::<2, 2>(simd, reduction, two, samples, stride),
        (2, 5) => reduced::<2, 5>(simd, reduction, two, samples, stride),
        (3, 3) => reduced::<3, 3>(simd, reduction, two, samples, stride),
        (4, 4) => reduced::<4, 4>(simd, reduction, two, samples, stride),
        (4, 7) => reduced::<4, 7>(simd, reduction, two, samples, stride),
        (6, 6) => six(simd, reduction, two, samples, stride),
        // A single sample.
        _ => {
            for (coefficients, start) in two.coefficients.into_iter().zip(two.starts) {
                reduction.block(coefficients, two.quantization, &mut samples[start..], stride);
            }
        }
    }
}

/// A transform to at most four samples whose numbers of samples and frequencies the compiler knows. The first half of
/// each vector belongs to the first block.
#[inline(always)]
fn reduced<const SIDE: usize, const COUNT: usize>(
    simd: Neon,
    reduction: &Reduction,
    two: Two<'_>,
    samples: &mut [u8],
    stride: usize,
) {
    let [first_bits, second_bits] = reduction.bits();
    let zero = simd.neon.vdupq_n_s16(0);
    let mut low = [zero; COUNT];
    let mut high = [zero; COUNT];
    for k in 0..COUNT {
        let frequency = known::<SIDE, COUNT>().frequencies[k];
        let [first, second] = two.coefficients;
        let first = cast(row(simd, first, two.quantization, frequency));
        let second = cast(row(simd, second, two.quantization, frequency));
        low[k] = cast(simd.neon.vtrn1q_s64(first, second));
        high[k] = cast(simd.neon.vtrn2q_s64(first, second));
    }
    let mut columns = [zero; 8];
    let low = reduced_pass::<SIDE, COUNT, 4>(simd, reduction, low, first_bits);
    columns[..4].copy_from_slice(&transpose_halves(simd, low));
    if COUNT > 4 {
        let high = reduced_pass::<SIDE, COUNT, 4>(simd, reduction, high, first_bits);
        columns[4..].copy_from_slice(&transpose_halves(simd, high));
    }
    let read = from_fn(|k| columns[known::<SIDE, COUNT>().frequencies[k]]);
    let rows = transpose_halves(simd, reduced_pass::<SIDE, COUNT, 4>(simd, reduction, read, second_bits));
    for (y, row) in rows.into_iter().enumerate().take(SIDE) {
        let bytes: [[u8; 4]; 2] = cast(bytes(simd, row));
        for (start, bytes) in two.starts.iter().zip(&bytes) {
            samples[start + y * stride..][..SIDE].copy_from_slice(&bytes[..SIDE]);
        }
    }
}

/// The transform to six samples.
#[inline(always)]
fn six(simd: Neon, reduction: &Reduction, two: Two<'_>, samples: &mut [u8], stride: usize) {
    let [first_bits, second_bits] = reduction.bits();
    for (coefficients, start) in two.coefficients.iter().zip(two.starts) {
        let rows = from_fn(|y| row(simd, coefficients, two.quantization, y));
        let columns = transpose(simd, reduced_pass::<6, 6, 8>(simd, reduction, rows, first_bits));
        let [a, b, c, d, e, f, ..] = columns;
        let rows = transpose(simd, reduced_pass::<6, 6, 8>(simd, reduction, [a, b, c, d, e, f], second_bits));
        for (y, row) in rows.into_iter().enumerate().take(6) {
            samples[start + y * stride..][..6].copy_from_slice(&bytes(simd, row)[..6]);
        }
    }
}

/// Samples of 16 bits, clipped to 8.
#[inline(always)]
fn bytes(simd: Neon, row: int16x8_t) -> [u8; 8] {
    cast(simd.neon.veor_u8(cast(simd.neon.vqmovn_s16(row)), simd.neon.vdup_n_u8(128)))
}

/// One direction of a reduced transform on eight columns, divided by 2^`bits` with rounding and clipped to 16 bits. The
/// last of `ROWS` are empty.
#[inline(always)]
fn reduced_pass<const SIDE: usize, const COUNT: usize, const ROWS: usize>(
    simd: Neon,
    reduction: &Reduction,
    s: [int16x8_t; COUNT],
    bits: u32,
) -> [int16x8_t; ROWS] {
    let neon = simd.neon;
    let half = neon.vdupq_n_s32(1 << (bits - 1));
    let shift = neon.vdupq_n_s32(-(bits as i32));
    // The first frequency's factor, a power of two, may exceed 16 bits.
    let scale = neon.vdupq_n_s32(reduction.scale_bits() as i32);
    let low = neon.vshlq_s32(neon.vmovl_s16(neon.vget_low_s16(s[0])), scale);
    let high = neon.vshlq_s32(neon.vmovl_high_s16(s[0]), scale);
    let first = [neon.vaddq_s32(low, half), neon.vaddq_s32(high, half)];
    let mut rows = [neon.vdupq_n_s16(0); ROWS];
    for i in 0..SIDE.div_ceil(2) {
        // The second half of the samples mirrors the first one, with the odd frequencies' sign changed.
        let mut parts = [first, [neon.vdupq_n_s32(0); 2]];
        for k in 1..COUNT {
            let part = &mut parts[known::<SIDE, COUNT>().frequencies[k] % 2];
            let factors = cast(reduction.factors[k]);
            *part = match i {
                0 => plus::<0>(simd, *part, s[k], factors),
                1 => plus::<1>(simd, *part, s[k], factors),
                _ => plus::<2>(simd, *part, s[k], factors),
            };
        }
        let [even, odd] = parts;
        let low = neon.vqmovn_s32(neon.vshlq_s32(neon.vaddq_s32(even[0], odd[0]), shift));
        let high = neon.vqmovn_s32(neon.vshlq_s32(neon.vaddq_s32(even[1], odd[1]), shift));
        rows[i] = neon.vcombine_s16(low, high);
        let low = neon.vqmovn_s32(neon.vshlq_s32(neon.vsubq_s32(even[0], odd[0]), shift));
        let high = neon.vqmovn_s32(neon.vshlq_s32(neon.vsubq_s32(even[1], odd[1]), shift));
        rows[SIDE - 1 - i] = neon.vcombine_s16(low, high);
    }
    rows
}

/// Pixels converted at once.
const GROUP: usize = 16;

/// For each of the three 16-byte parts of 16 interleaved pixels: the places of its bytes among the channels'.
const PLACES: [[u8; 16]; 3] = {
    let mut places = [[0; 16]; 3];
    let mut i = 0;
    while i < 48 {
        places[i / 16][i % 16] = (i % 3 * 16 + i / 3) as u8;
        i += 1;
    }
    places
};

#[inline(always)]
pub(crate) fn ycbcr(simd: Neon, [y, cb, cr]: [&[u8]; 3], out: &mut [[u8; 3]]) {
    let n = out.len();
    let (groups, rest) = out.as_chunks_mut::<GROUP>();
    let sources = y.as_chunks::<GROUP>().0.iter().zip(cb.as_chunks::<GROUP>().0).zip(cr.as_chunks::<GROUP>().0);
    for (pixels, ((y, cb), cr)) in groups.iter_mut().zip(sources) {
        let channels = cast(rgb(simd, cast(*y), cast(*cb), cast(*cr)));
        *pixels = cast([
            simd.neon.vqtbl3q_u8(channels, cast(PLACES[0])),
            simd.neon.vqtbl3q_u8(channels, cast(PLACES[1])),
            simd.neon.vqtbl3q_u8(channels, cast(PLACES[2])),
        ]);
    }
    let done = n - rest.len();
    color::ycbcr([&y[done..n], &cb[done..n], &cr[done..n]], rest);
}

/// 2 (x - 128)
#[inline(always)]
fn doubled(simd: Neon, x: uint8x16_t) -> [int16x8_t; 2] {
    let signed: int8x16_t = cast(simd.neon.veorq_u8(x, simd.neon.vdupq_n_u8(128)));
    [simd.neon.vshll_n_s8::<1>(simd.neon.vget_low_s8(signed)), simd.neon.vshll_high_n_s8::<1>(signed)]
}

/// The difference of green from luminance.
#[inline(always)]
fn green_part(simd: Neon, cb: int16x8_t, cr: int16x8_t) -> int16x8_t {
    let neon = simd.neon;
    // -0.34414 and -0.71414 in 16 fraction bits, halved for doubled operands.
    let low = neon.vmlal_n_s16(neon.vmull_n_s16(neon.vget_low_s16(cb), -11277), neon.vget_low_s16(cr), -23401);
    let high = neon.vmlal_high_n_s16(neon.vmull_high_n_s16(cb, -11277), cr, -23401);
    neon.vrshrn_high_n_s32::<16>(neon.vrshrn_n_s32::<16>(low), high)
}

/// A channel, from its differences from luminance, clipped.
#[inline(always)]
fn plus_luminance(simd: Neon, y: uint8x16_t, differences: [int16x8_t; 2]) -> uint8x16_t {
    let neon = simd.neon;
    let low: int16x8_t = cast(neon.vaddw_u8(cast(differences[0]), neon.vget_low_u8(y)));
    let high: int16x8_t = cast(neon.vaddw_high_u8(cast(differences[1]), y));
    neon.vqmovun_high_s16(neon.vqmovun_s16(low), high)
}

/// 16 pixels' channels. The factors of red and blue are those with which every product of 16 bits rounds as with 16
/// fraction bits.
#[inline(always)]
fn rgb(simd: Neon, y: uint8x16_t, cb: uint8x16_t, cr: uint8x16_t) -> [uint8x16_t; 3] {
    let neon = simd.neon;
    let cb = doubled(simd, cb);
    let cr = doubled(simd, cr);
    let red = [neon.vqrdmulhq_n_s16(cr[0], 22971), neon.vqrdmulhq_n_s16(cr[1], 22971)];
    let green = [green_part(simd, cb[0], cr[0]), green_part(simd, cb[1], cr[1])];
    let blue = [neon.vqrdmulhq_n_s16(cb[0], 29033), neon.vqrdmulhq_n_s16(cb[1], 29033)];
    [plus_luminance(simd, y, red), plus_luminance(simd, y, green), plus_luminance(simd, y, blue)]
}
