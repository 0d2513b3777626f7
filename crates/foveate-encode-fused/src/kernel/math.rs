//! Elementary functions on vectors, accurate to about one unit in the last place where it matters.

use pulp::Simd;

/// 1.5 · 2²³: adding it leaves a float's nearest integer in its lowest bits.
const ROUNDER: f32 = 12_582_912.0;

/// `c[0] + c[1]·x + c[2]·x² + …`, by Horner's rule.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(simd: S, x: S::f32s, coefficients: [f32; N]) -> S::f32s {
    let mut sum = simd.splat_f32s(coefficients[N - 1]);
    for i in (0..N - 1).rev() {
        sum = simd.mul_add_e_f32s(sum, x, simd.splat_f32s(coefficients[i]));
    }
    sum
}

/// `exp(x)`, relative error below 2e-7, for `x` in −87..=88; other arguments are clamped to this range.
///
/// `exp(x) = 2ⁿ · exp(r)` with `|r| ≤ ln 2 / 2`; the minimax polynomial of `exp(r)` is accurate to 2e-9.
#[inline(always)]
pub(crate) fn exp<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    const LN2_HIGH: f32 = 0.693_359_4; // nine bits of ln 2: n times it is exact
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let x = simd.max_f32s(simd.min_f32s(x, simd.splat_f32s(88.0)), simd.splat_f32s(-87.0));
    let rounded = simd.mul_add_e_f32s(x, simd.splat_f32s(std::f32::consts::LOG2_E), simd.splat_f32s(ROUNDER));
    let n = simd.sub_f32s(rounded, simd.splat_f32s(ROUNDER));
    let r = simd.mul_add_e_f32s(n, simd.splat_f32s(-LN2_HIGH), x);
    let r = simd.mul_add_e_f32s(n, simd.splat_f32s(-LN2_LOW), r);
    let mantissa =
        polynomial(simd, r, [1.0, 1.0, 0.499_999_94, 0.166_664_32, 0.041_668_0, 0.008_374_156, 0.001_384_364_9]);
    let exponent = simd.wrapping_dyn_shl_u32s(simd.transmute_u32s_f32s(rounded), simd.splat_u32s(23));
    simd.transmute_f32s_u32s(simd.add_u32s(simd.transmute_u32s_f32s(mantissa), exponent))
}

/// `exp(x)` for `x` in −87..=0, relative error below 1e-5: for values that are rounded to bf16. Lower arguments are
/// clamped.
///
/// As [`exp`], with a shorter polynomial.
#[inline(always)]
pub(crate) fn exp_short<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let x = simd.max_f32s(x, simd.splat_f32s(-87.0));
    let rounded = simd.mul_add_e_f32s(x, simd.splat_f32s(std::f32::consts::LOG2_E), simd.splat_f32s(ROUNDER));
    let n = simd.sub_f32s(rounded, simd.splat_f32s(ROUNDER));
    let r = simd.mul_add_e_f32s(n, simd.splat_f32s(-std::f32::consts::LN_2), x);
    let mantissa = polynomial(simd, r, [0.999_999_3, 0.999_963_4, 0.500_043_6, 0.167_909_08, 0.041_458_61]);
    let exponent = simd.wrapping_dyn_shl_u32s(simd.transmute_u32s_f32s(rounded), simd.splat_u32s(23));
    simd.transmute_f32s_u32s(simd.add_u32s(simd.transmute_u32s_f32s(mantissa), exponent))
}

/// The exact GELU, `x · Φ(x)` with Φ the normal distribution (`0.5 · x · (1 + erf(x / √2))`); Φ is accurate to 2e-7.
///
/// `Φ(x) = ½ + x · P(x²) / Q(x²)`, a rational minimax fit over |x| ≤ 5.65, beyond which Φ is 0 or 1 in f32.
#[inline(always)]
pub(crate) fn gelu<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    const SATURATION: f32 = 5.65;
    const P: [f32; 6] = [0.398_942_2, 0.034_652_922, 0.004_723_559_6, 0.000_176_551_23, 6.363_562_5e-6, 2.185_78e-8];
    const Q: [f32; 6] = [1.0, 0.253_527_58, 0.029_096_778, 0.001_928_350_9, 7.590_588e-5, 1.172_317e-6];
    let z = simd.max_f32s(simd.min_f32s(x, simd.splat_f32s(SATURATION)), simd.splat_f32s(-SATURATION));
    let square = simd.mul_f32s(z, z);
    let ratio = simd.div_f32s(polynomial(simd, square, P), polynomial(simd, square, Q));
    let phi = simd.mul_add_e_f32s(z, ratio, simd.splat_f32s(0.5));
    let phi = simd.max_f32s(simd.min_f32s(phi, simd.splat_f32s(1.0)), simd.splat_f32s(0.0));
    simd.mul_f32s(x, phi)
}

/// GELU by the hyperbolic tangent, `0.5 · x · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))`. As `tanh(z) = 2 σ(2z) − 1`, it
/// is `x · σ(2z)`.
#[inline(always)]
pub(crate) fn gelu_tanh<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    const LINEAR: f32 = 1.595_769_2; // 2 · √(2/π)
    const CUBIC: f32 = 0.071_354_814; // 0.044715 of that
    let square = simd.mul_f32s(x, x);
    let slope = simd.mul_add_e_f32s(square, simd.splat_f32s(CUBIC), simd.splat_f32s(LINEAR));
    weighted_by_sigmoid(simd, x, simd.mul_f32s(x, slope))
}

/// [`gelu`] with an error below 2e-5 for |x| ≤ 4, and below 5e-5 · |x| beyond: for values that are rounded to 8 bits or
/// to bf16.
#[inline(always)]
pub(crate) fn gelu_short<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let odd = [
        0.398_881_02,
        -0.066_323_63,
        0.009_815_801,
        -0.001_112_856_1,
        9.494_025e-5,
        -5.860_600_6e-6,
        2.440_845_3e-7,
        -6.066_907_4e-9,
        6.740_396e-11,
    ];
    weighted_by_odd(simd, x, odd)
}

/// [`gelu_tanh`] with the error of [`gelu_short`].
#[inline(always)]
pub(crate) fn gelu_tanh_short<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let odd = [
        0.398_866_65,
        -0.066_622_786,
        0.010_028_258,
        -0.001_171_612_5,
        1.036_787_5e-4,
        -6.629_589e-6,
        2.843_504_2e-7,
        -7.229_820_7e-9,
        8.168_954_4e-11,
    ];
    weighted_by_odd(simd, x, odd)
}

/// `x · (½ + z · P(z²))` with `z = x` within −4..=4: minimax fits of functions that are 0 or 1 beyond.
#[inline(always)]
fn weighted_by_odd<S: Simd>(simd: S, x: S::f32s, odd: [f32; 9]) -> S::f32s {
    let z = simd.max_f32s(simd.min_f32s(x, simd.splat_f32s(4.0)), simd.splat_f32s(-4.0));
    let p = polynomial(simd, simd.mul_f32s(z, z), odd);
    simd.mul_f32s(x, simd.mul_add_e_f32s(z, p, simd.splat_f32s(0.5)))
}

/// `x · σ(1.702 · x)`.
#[inline(always)]
pub(crate) fn quick_gelu<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    weighted_by_sigmoid(simd, x, simd.mul_f32s(x, simd.splat_f32s(1.702)))
}

/// `x / (1 + exp(−z))`.
#[inline(always)]
fn weighted_by_sigmoid<S: Simd>(simd: S, x: S::f32s, z: S::f32s) -> S::f32s {
    let denominator = simd.add_f32s(simd.splat_f32s(1.0), exp(simd, simd.neg_f32s(z)));
    simd.div_f32s(x, denominator)
}

/// SiLU, `x / (1 + exp(−x))`.
#[inline(always)]
pub(crate) fn silu<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    weighted_by_sigmoid(simd, x, x)
}

#[cfg(test)]
mod tests {
    use pulp::WithSimd;

    use super::*;
    use crate::kernel::isa::Isa;
    use crate::kernel::{load, store};

    #[derive(Clone, Copy, Debug)]
    enum Function {
        Exp,
        ExpShort,
        Gelu,
        GeluShort,
        GeluTanh,
        GeluTanhShort,
        QuickGelu,
        Silu,
    }

    struct Apply<'a>(Function, &'a mut [f32]);

    impl WithSimd for Apply<'_> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            for part in self.1.chunks_mut(S::F32_LANES) {
                let x = load(simd, part);
                let y = match self.0 {
                    Function::Exp => exp(simd, x),
                    Function::ExpShort => exp_short(simd, x),
                    Function::Gelu => gelu(simd, x),
                    Function::GeluShort => gelu_short(simd, x),
                    Function::GeluTanh => gelu_tanh(simd, x),
                    Function::GeluTanhShort => gelu_tanh_short(simd, x),
                    Function::QuickGelu => quick_gelu(simd, x),
                    Function::Silu => silu(simd, x),
                };
                store(simd, part, y);
            }
        }
    }

    fn apply(isa: Isa, function: Function, x: &[f32]) -> Vec<f32> {
        let mut y = x.to_vec();
        isa.run(Apply(function, &mut y));
        y
    }

    fn grid(low: f32, high: f32) -> Vec<f32> {
        (0..=200_000).map(|i| low + (high - low) * (i as f32 / 200_000.0)).collect()
    }

    #[test]
    fn exp_is_accurate() {
        let x = grid(-87.0, 88.0);
        for isa in Isa::all() {
            for (y, &x) in apply(isa, Function::Exp, &x).iter().zip(&x) {
                let want = f64::from(x).exp();
                assert!(((f64::from(*y) - want) / want).abs() < 2e-7, "exp({x}) = {y} on {isa:?}");
            }
            assert!(apply(isa, Function::Exp, &[-1e30, f32::NEG_INFINITY]).iter().all(|&y| (0.0..1e-37).contains(&y)));
        }
    }

    #[test]
    fn short_functions_are_far_more_accurate_than_bf16() {
        for isa in Isa::all() {
            let x = grid(-87.0, 0.0);
            for (y, &x) in apply(isa, Function::ExpShort, &x).iter().zip(&x) {
                let want = f64::from(x).exp();
                assert!(((f64::from(*y) - want) / want).abs() < 1e-5, "exp({x}) = {y} on {isa:?}");
            }
            assert!(apply(isa, Function::ExpShort, &[-1e30]).iter().all(|&y| (0.0..2e-38).contains(&y)));
            let x = grid(-30.0, 30.0);
            for (short, exact) in [(Function::GeluShort, Function::Gelu), (Function::GeluTanhShort, Function::GeluTanh)]
            {
                for ((y, want), &x) in apply(isa, short, &x).iter().zip(apply(isa, exact, &x)).zip(&x) {
                    let most = if x.abs() <= 4.0 { 2e-5 } else { 5e-5 * x.abs() };
                    assert!((y - want).abs() <= most, "{short:?}({x}) = {y}, not {want}");
                }
            }
            assert_eq!(apply(isa, Function::GeluShort, &[0.0, -0.0]), [0.0, 0.0]);
            assert!(apply(isa, Function::GeluShort, &[f32::NAN])[0].is_nan());
        }
    }

    /// Φ by the Taylor series of erf near zero and its continued fraction farther out, in f64.
    fn normal_distribution(x: f64) -> f64 {
        let z = x.abs() / std::f64::consts::SQRT_2;
        let erfc = if z < 2.5 {
            let mut term = z;
            let mut sum = z;
            for n in 1..100 {
                term *= -z * z / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            1.0 - sum * std::f64::consts::FRAC_2_SQRT_PI
        } else {
            let fraction = (1..200).rev().fold(z, |tail, k| z + f64::from(k) / 2.0 / tail);
            (-z * z).exp() / fraction * std::f64::consts::FRAC_2_SQRT_PI / 2.0
        };
        if x > 0.0 { 1.0 - erfc / 2.0 } else { erfc / 2.0 }
    }

    #[test]
    fn gelu_is_the_exact_one() {
        let x = grid(-9.0, 9.0);
        for isa in Isa::all() {
            for (y, &x) in apply(isa, Function::Gelu, &x).iter().zip(&x) {
                let want = f64::from(x) * normal_distribution(f64::from(x));
                assert!(
                    (f64::from(*y) - want).abs() <= 3e-7 * f64::from(x).abs().max(1e-3),
                    "gelu({x}) = {y}, not {want}"
                );
            }
            assert_eq!(apply(isa, Function::Gelu, &[-1e6, 1e6, 0.0]), [0.0, 1e6, 0.0]);
        }
    }

    #[test]
    fn products_with_a_sigmoid_are_accurate() {
        let sigmoid = |z: f64| 1.0 / (1.0 + (-z).exp());
        for isa in Isa::all() {
            let x = grid(-80.0, 80.0);
            for (y, &x) in apply(isa, Function::Silu, &x).iter().zip(&x) {
                let want = f64::from(x) * sigmoid(f64::from(x));
                assert!((f64::from(*y) - want).abs() <= 4e-7 * want.abs(), "silu({x}) = {y}, not {want}");
            }
            let x = grid(-9.0, 9.0);
            let tanh = apply(isa, Function::GeluTanh, &x);
            let quick = apply(isa, Function::QuickGelu, &x);
            for ((&x, tanh), quick) in x.iter().zip(tanh).zip(quick) {
                let exact = f64::from(x);
                let z = (2.0 / std::f64::consts::PI).sqrt() * (exact + 0.044_715 * exact.powi(3));
                let most = 4e-7 * exact.abs().max(1e-3);
                assert!((f64::from(tanh) - 0.5 * exact * (1.0 + z.tanh())).abs() <= most, "gelu_tanh({x}) = {tanh}");
                assert!((f64::from(quick) - exact * sigmoid(1.702 * exact)).abs() <= most, "quick_gelu({x}) = {quick}");
            }
            assert_eq!(apply(isa, Function::GeluTanh, &[1e6, 0.0]), [1e6, 0.0]);
        }
    }
}
