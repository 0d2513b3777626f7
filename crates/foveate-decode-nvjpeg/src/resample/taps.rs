//! The source pixels of an output pixel, and their weights. The numerics are fast_image_resize's, so that the pixels
//! equal those of the CPU's resizer `fir`.

use foveate_resize::Filter;
use foveate_resize::axis::Axis;

/// One of Pillow's smooth filters.
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    at: fn(f64) -> f64,
    /// Its reach to each side.
    pub(crate) support: f64,
}

impl Kernel {
    /// The kernel of a smooth antialiased filter; `None` for the others.
    pub(crate) fn of(filter: Filter) -> Option<Self> {
        Some(match filter.approximate() {
            Filter::Bilinear => Self { at: triangle, support: 1.0 },
            Filter::Bicubic => Self { at: cubic, support: 2.0 },
            Filter::Lanczos3 => Self { at: lanczos, support: 3.0 },
            _ => return None,
        })
    }
}

fn triangle(x: f64) -> f64 {
    (1.0 - x.abs()).max(0.0)
}

/// a = -0.5.
fn cubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    match x.abs() {
        x if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
        x if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * A,
        _ => 0.0,
    }
}

fn lanczos(x: f64) -> f64 {
    if (-3.0..3.0).contains(&x) { sinc(x) * sinc(x / 3.0) } else { 0.0 }
}

fn sinc(x: f64) -> f64 {
    let x = x * std::f64::consts::PI;
    if x == 0.0 { 1.0 } else { x.sin() / x }
}

/// The taps of every output pixel along an axis.
#[derive(Debug, PartialEq)]
pub(crate) struct Taps {
    /// The first source pixel of each, and their number.
    pub(crate) runs: Vec<[u32; 2]>,
    /// `window` weights for each; the first ones belong to the run, the others are 0.
    pub(crate) weights: Vec<i16>,
    /// The most taps of any pixel, rounded up to a multiple of 4, because the kernels read four weights at a time.
    pub(crate) window: usize,
    /// Fractional bits of a weight.
    pub(crate) precision: u32,
}

impl Taps {
    /// The taps of a copy of the `len` pixels from `first` on.
    pub(crate) fn copy(first: u32, len: u32) -> Self {
        let runs = (first..first + len).map(|at| [at, 1]).collect();
        Self { runs, weights: [2, 0, 0, 0].repeat(len as usize), window: 4, precision: 1 }
    }

    /// The taps of a convolution, widened when it shrinks.
    pub(crate) fn convolution(axis: Axis, kernel: Kernel) -> Self {
        // As in fast_image_resize: from the box's two ends, which rounds.
        let scale = ((axis.at + axis.len) - axis.at) / f64::from(axis.target);
        let widening = scale.max(1.0);
        let reach = kernel.support * widening;
        let window = (reach.ceil() as usize * 2 + 1).next_multiple_of(4);
        let mut runs = Vec::with_capacity(axis.target as usize);
        let mut weights = Vec::with_capacity(axis.target as usize * window);
        for target in 0..axis.target {
            let centre = axis.at + (f64::from(target) + 0.5) * scale;
            let first = (centre - reach).floor().max(0.0) as u32;
            let end = (centre + reach).ceil().min(f64::from(axis.whole)) as u32;
            let run = (first..end).map(|at| (kernel.at)((f64::from(at) - (centre - 0.5)) * (1.0 / widening)));
            runs.push(push_run(first, run, window, &mut weights));
        }
        let precision = precision(weights.iter().copied().fold(0.0, f64::max));
        let one = f64::from(1_u32 << precision);
        let weights = weights.into_iter().map(|weight| (weight * one).round() as i16).collect();
        Self { runs, weights, window, precision }
    }
}

/// Appends one pixel's weights, padded to `window`, and returns its run without zeros at either end.
fn push_run(first: u32, all: impl Iterator<Item = f64>, window: usize, weights: &mut Vec<f64>) -> [u32; 2] {
    let start = weights.len();
    let mut skipped = 0;
    for weight in all {
        if weights.len() == start && weight == 0.0 {
            skipped += 1;
        } else {
            weights.push(weight);
        }
    }
    let run = &mut weights[start..];
    let sum: f64 = run.iter().sum();
    let count = run.iter().rposition(|&weight| weight != 0.0).map_or(0, |last| last + 1);
    if sum != 0.0 {
        run.iter_mut().for_each(|weight| *weight /= sum);
    }
    weights.resize(start + window, 0.0);
    [first + skipped, count as u32]
}

/// Returns as many bits as let the largest weight fit into 16 bits, and sums of products with u8 into 32.
fn precision(largest: f64) -> u32 {
    const MOST: u32 = 32 - 8 - 2 - 1;
    (0..MOST).find(|&bits| (largest * f64::from(1_u32 << (bits + 1))).round() as i32 >= 1 << 15).unwrap_or(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_sum_up_to_one() {
        for (whole, target) in [(100, 100), (4000, 224), (10, 224), (1, 5), (7, 3)] {
            let axis = Axis { at: 0.0, len: f64::from(whole), whole, target };
            for filter in [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos3] {
                let taps = Taps::convolution(axis, Kernel::of(filter).unwrap());
                assert_eq!((taps.runs.len(), taps.weights.len()), (target as usize, target as usize * taps.window));
                for ([first, count], weights) in taps.runs.iter().zip(taps.weights.chunks(taps.window)) {
                    let sum: i32 = weights[..*count as usize].iter().map(|&weight| i32::from(weight)).sum();
                    let off = (sum - (1 << taps.precision)).unsigned_abs();
                    assert!(first + count <= whole && off <= count / 2 + 1, "{filter:?} {whole} to {target}: {sum}");
                }
            }
        }
    }

    #[test]
    fn a_filter_that_is_no_convolution_has_no_kernel() {
        assert!([Filter::Box, Filter::OpenCvLinear, Filter::OpenCvArea].into_iter().all(|f| Kernel::of(f).is_none()));
    }
}
