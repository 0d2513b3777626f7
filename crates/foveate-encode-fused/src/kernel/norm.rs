//! LayerNorm over rows.

use pulp::{Simd, WithSimd};

use crate::kernel::words::Words;
use crate::kernel::{load, store};

/// Sums along a row run over this many lanes, whatever the width of a vector, and are then added in pairs.
const LANES: usize = 64;

/// `(x − mean) / √(variance + eps) · scale + shift` for each row of `x`, `[rows, width]`, into `out` of the same shape.
/// The variance is the biased one, computed from the deviations, as in PyTorch.
pub(crate) struct LayerNorm<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) scale: &'a [f32],
    pub(crate) shift: &'a [f32],
    pub(crate) eps: f32,
    /// Of which only the first row is used if there are `words`.
    pub(crate) out: &'a mut [f32],
    /// Takes the rows in fewer bits, instead of `out`.
    pub(crate) words: Option<&'a mut Words>,
}

impl WithSimd for LayerNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match S::F32_LANES {
            16 => self.rows::<S, 4>(simd),
            8 => self.rows::<S, 8>(simd),
            4 => self.rows::<S, 16>(simd),
            _ => self.rows::<S, 64>(simd),
        }
    }
}

impl LayerNorm<'_> {
    /// `A` vectors make up the 64 lanes.
    #[inline(always)]
    fn rows<S: Simd, const A: usize>(mut self, simd: S) {
        const { assert!(A.is_power_of_two()) };
        let width = self.scale.len();
        for (row, x) in self.x.chunks_exact(width).enumerate() {
            let place = if self.words.is_some() { 0 } else { row * width };
            let out = &mut self.out[place..][..width];
            let mean = sum::<S, A, false>(simd, x, 0.0) / width as f32;
            let variance = sum::<S, A, true>(simd, x, mean) / width as f32;
            let factor = 1.0 / (variance + self.eps).sqrt();
            affine(simd, x, mean, factor, self.scale, self.shift, out);
            if let Some(words) = &mut self.words {
                words.round(simd, row, out);
            }
        }
    }
}

/// `Σ x`, or `Σ (x − center)²` when `SQUARED`.
#[inline(always)]
fn sum<S: Simd, const A: usize, const SQUARED: bool>(simd: S, x: &[f32], center: f32) -> f32 {
    let (body, tail) = x.as_chunks::<LANES>();
    let minus = simd.splat_f32s(-center);
    let mut sums = [simd.splat_f32s(0.0); A];
    for part in body {
        let (vectors, _) = S::as_simd_f32s(part);
        for (sum, &x) in sums.iter_mut().zip(vectors) {
            let deviation = simd.add_f32s(x, minus);
            *sum = if SQUARED { simd.mul_add_e_f32s(deviation, deviation, *sum) } else { simd.add_f32s(*sum, x) };
        }
    }
    let mut lanes = [0.0; LANES];
    let (vectors, _) = S::as_mut_simd_f32s(&mut lanes);
    vectors.copy_from_slice(&sums);
    for (lane, &x) in lanes.iter_mut().zip(tail) {
        let deviation = x - center;
        *lane = if SQUARED { deviation.mul_add(deviation, *lane) } else { *lane + x };
    }
    sum_in_pairs(lanes)
}

#[inline(always)]
fn sum_in_pairs(mut lanes: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        let (low, high) = lanes.split_at_mut(half);
        for (low, &high) in low.iter_mut().zip(&high[..half]) {
            *low += high;
        }
        half /= 2;
    }
    lanes[0]
}

/// `(x − mean) · factor · scale + shift`.
#[inline(always)]
fn affine<S: Simd>(simd: S, x: &[f32], mean: f32, factor: f32, scale: &[f32], shift: &[f32], out: &mut [f32]) {
    let lanes = S::F32_LANES;
    let mean = simd.splat_f32s(mean);
    let factor = simd.splat_f32s(factor);
    for (((x, scale), shift), out) in
        x.chunks(lanes).zip(scale.chunks(lanes)).zip(shift.chunks(lanes)).zip(out.chunks_mut(lanes))
    {
        let unit = simd.mul_f32s(simd.sub_f32s(load(simd, x), mean), factor);
        store(simd, out, simd.mul_add_e_f32s(unit, load(simd, scale), load(simd, shift)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::isa::Isa;

    fn layer_norm(isa: Isa, x: &[f32], scale: &[f32], shift: &[f32], eps: f32) -> Vec<f32> {
        let mut out = vec![f32::NAN; x.len()];
        isa.run(LayerNorm { x, scale, shift, eps, out: &mut out, words: None });
        out
    }

    fn numbers(n: usize, seed: u32) -> Vec<f32> {
        (0..n as u32).map(|i| ((i ^ seed).wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0).collect()
    }

    #[test]
    fn rows_equal_the_definition_for_every_width() {
        for width in [1, 3, 16, 63, 64, 65, 100, 384] {
            let (scale, shift) = (numbers(width, 1), numbers(width, 2));
            let x: Vec<f32> = numbers(3 * width, 3).iter().map(|v| 5.0 * v + 20.0).collect();
            for isa in Isa::all() {
                let out = layer_norm(isa, &x, &scale, &shift, 1e-3);
                for (x, out) in x.chunks(width).zip(out.chunks(width)) {
                    let mean = x.iter().map(|&v| f64::from(v)).sum::<f64>() / width as f64;
                    let variance = x.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / width as f64;
                    for i in 0..width {
                        let unit = (f64::from(x[i]) - mean) / (variance + 1e-3).sqrt();
                        let want = unit * f64::from(scale[i]) + f64::from(shift[i]);
                        assert!((f64::from(out[i]) - want).abs() < 1e-5, "width {width} on {isa:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn processors_with_fused_multiply_add_agree_bit_for_bit() {
        let isas: Vec<_> = Isa::all().into_iter().filter(|isa| isa.lanes() > 1).collect();
        for width in [64, 100, 384] {
            let (scale, shift, x) = (numbers(width, 1), numbers(width, 2), numbers(5 * width, 3));
            for pair in isas.windows(2) {
                let [a, b] = [pair[0], pair[1]].map(|isa| layer_norm(isa, &x, &scale, &shift, 1e-6));
                assert_eq!(a, b);
            }
        }
    }
}
