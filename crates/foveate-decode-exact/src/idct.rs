//! The inverse DCT that libjpeg calls "islow": Loeffler, Ligtenberg and Moschytz, "Practical Fast 1-D DCT Algorithms
//! with 11 Multiplications" (ICASSP 1989), in integers with 13-bit constants. Columns come first, and two more bits are
//! kept between the passes. Equal pixels require equal rounding.

pub(crate) const CONST_BITS: u32 = 13;
pub(crate) const PASS1_BITS: u32 = 2;

const F_0_298: i32 = 2446;
const F_0_390: i32 = 3196;
const F_0_541: i32 = 4433;
const F_0_765: i32 = 6270;
const F_0_899: i32 = 7373;
const F_1_175: i32 = 9633;
const F_1_501: i32 = 12299;
const F_1_847: i32 = 15137;
const F_1_961: i32 = 16069;
const F_2_053: i32 = 16819;
const F_2_562: i32 = 20995;
const F_3_072: i32 = 25172;

/// A 16-bit sum, as in libjpeg-turbo's vector code and in ours; only damaged files exceed it.
#[inline(always)]
fn sum(a: i32, b: i32) -> i32 {
    i32::from(a.wrapping_add(b) as i16)
}

/// One coefficient of a block.
#[inline(always)]
pub(crate) fn dequantized(coefficients: &[i16; 64], quantization: &[i16; 64], at: usize) -> i32 {
    i32::from(coefficients[at].wrapping_mul(quantization[at]))
}

/// Eight samples in one direction, scaled up by 2^[`CONST_BITS`].
#[inline(always)]
fn transform(s: [i32; 8]) -> [i32; 8] {
    let z1 = s[2].wrapping_add(s[6]).wrapping_mul(F_0_541);
    let even2 = z1.wrapping_sub(s[6].wrapping_mul(F_1_847));
    let even3 = z1.wrapping_add(s[2].wrapping_mul(F_0_765));
    let even0 = sum(s[0], s[4]) << CONST_BITS;
    let even1 = sum(s[0], -s[4]) << CONST_BITS;
    let even =
        [even0.wrapping_add(even3), even1.wrapping_add(even2), even1.wrapping_sub(even2), even0.wrapping_sub(even3)];

    let z1 = s[7].wrapping_add(s[1]).wrapping_mul(-F_0_899);
    let z2 = s[5].wrapping_add(s[3]).wrapping_mul(-F_2_562);
    let z3 = sum(s[7], s[3]);
    let z4 = sum(s[5], s[1]);
    let z5 = z3.wrapping_add(z4).wrapping_mul(F_1_175);
    let z3 = z3.wrapping_mul(-F_1_961).wrapping_add(z5);
    let z4 = z4.wrapping_mul(-F_0_390).wrapping_add(z5);
    let odd = [
        s[1].wrapping_mul(F_1_501).wrapping_add(z1).wrapping_add(z4),
        s[3].wrapping_mul(F_3_072).wrapping_add(z2).wrapping_add(z3),
        s[5].wrapping_mul(F_2_053).wrapping_add(z2).wrapping_add(z4),
        s[7].wrapping_mul(F_0_298).wrapping_add(z1).wrapping_add(z3),
    ];
    [
        even[0].wrapping_add(odd[0]),
        even[1].wrapping_add(odd[1]),
        even[2].wrapping_add(odd[2]),
        even[3].wrapping_add(odd[3]),
        even[3].wrapping_sub(odd[3]),
        even[2].wrapping_sub(odd[2]),
        even[1].wrapping_sub(odd[1]),
        even[0].wrapping_sub(odd[0]),
    ]
}

/// `value / 2^bits`, rounded.
#[inline(always)]
pub(crate) fn descale(value: i32, bits: u32) -> i32 {
    value.wrapping_add(1 << (bits - 1)) >> bits
}

/// Turns a block of quantized coefficients, in natural order, into 8 rows of 8 samples at the start of `samples`,
/// whose rows are `stride` apart.
#[inline(always)]
pub(crate) fn block(coefficients: &[i16; 64], quantization: &[i16; 64], samples: &mut [u8], stride: usize) {
    let mut columns = [0i32; 64];
    for x in 0..8 {
        let mut column = [0; 8];
        for (y, value) in column.iter_mut().enumerate() {
            *value = dequantized(coefficients, quantization, y * 8 + x);
        }
        let transformed = transform(column);
        for y in 0..8 {
            let descaled = descale(transformed[y], CONST_BITS - PASS1_BITS);
            columns[y * 8 + x] = descaled.clamp(i16::MIN.into(), i16::MAX.into());
        }
    }
    for (y, row) in columns.as_chunks::<8>().0.iter().enumerate() {
        let transformed = transform(*row);
        let pixels = transformed.map(|v| (descale(v, CONST_BITS + PASS1_BITS + 3) + 128).clamp(0, 255) as u8);
        samples[y * stride..y * stride + 8].copy_from_slice(&pixels);
    }
}

/// The one sample of a block at 1/8 of its size. Like libjpeg-turbo's table of levels, it takes values modulo 1024.
#[inline(always)]
pub(crate) fn single_sample(coefficient: i16, quantization: i16) -> u8 {
    let value = descale(i32::from(coefficient) * i32::from(quantization), 3);
    ((value << 22 >> 22) + 128).clamp(0, 255) as u8
}

/// The `side` x `side` samples of a block in which only the first coefficient is not zero: one value for all, with the
/// rounding that every transform has. Blocks of 4 or 8 samples begin at multiples of those, and so do their rows.
#[inline(always)]
pub(crate) fn flat_block(coefficient: i16, quantization: i16, side: usize, samples: &mut [u8], stride: usize) {
    let column = i32::from(coefficient.wrapping_mul(quantization) << PASS1_BITS);
    let value = (descale(column, PASS1_BITS + 3) + 128).clamp(0, 255) as u8;
    match side {
        8 => fill::<8>(value, samples, stride),
        4 => fill::<4>(value, samples, stride),
        _ => (0..side).for_each(|y| samples[y * stride..y * stride + side].fill(value)),
    }
}

#[inline(always)]
fn fill<const SIDE: usize>(value: u8, samples: &mut [u8], stride: usize) {
    let samples = samples.as_chunks_mut::<SIDE>().0;
    for y in 0..SIDE {
        samples[y * stride / SIDE] = [value; SIDE];
    }
}

#[cfg(test)]
mod tests {
    use super::single_sample;

    #[test]
    fn single_samples_beyond_the_levels_wrap_as_libjpegs_do() {
        let levels = [0, 127, 128, 511, 512, 895, 896, 1023, 1024].map(|level| single_sample(level, 8));
        assert_eq!(levels, [128, 255, 255, 255, 0, 0, 0, 127, 128]);
        assert_eq!([-1, -128, -129, -513].map(|level| single_sample(level, 8)), [127, 0, 0, 255]);
    }
}
