//! Pillow's resize, every sample equal: weights of 22-bit fixed point computed in f64, and u8 between the passes.

use foveate_core::{CHANNELS, ImageView, ImageViewMut, Size};
use foveate_resize::axis::{Axis, axes, vertical_first};
use foveate_resize::{Filter, ResizePlan};
use pulp::Arch;

use crate::rows::Out;

/// Fractional bits of a weight.
const PRECISION: u32 = 22;
/// Added before the fraction is cut off.
const HALF: i32 = 1 << (PRECISION - 1);
/// Rows that the horizontal pass computes together: one vector of AVX2.
const LANES: usize = 8;

/// Pillow's kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ExactKernel {
    Box,
    Triangle,
    /// a = -0.5.
    Cubic,
    /// a = 3.
    Lanczos,
}

impl ExactKernel {
    /// The kernel of a filter whose samples equal Pillow's; `None` for the others.
    pub(crate) fn of(filter: Filter) -> Option<Self> {
        match filter {
            Filter::Box => Some(Self::Box),
            Filter::PillowBilinear => Some(Self::Triangle),
            Filter::PillowBicubic => Some(Self::Cubic),
            Filter::PillowLanczos3 => Some(Self::Lanczos),
            _ => None,
        }
    }

    pub(crate) fn support(self) -> f64 {
        match self {
            Self::Box => 0.5,
            Self::Triangle => 1.0,
            Self::Cubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    /// The weight at `x`, with Pillow's operations in Pillow's order.
    pub(crate) fn at(self, x: f64) -> f64 {
        let distance = x.abs();
        match self {
            Self::Box if x > -0.5 && x <= 0.5 => 1.0,
            Self::Triangle if distance < 1.0 => 1.0 - distance,
            Self::Cubic if distance < 1.0 => ((-0.5 + 2.0) * distance - (-0.5 + 3.0)) * distance * distance + 1.0,
            Self::Cubic if distance < 2.0 => (((distance - 5.0) * distance + 8.0) * distance - 4.0) * -0.5,
            Self::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            _ => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let angle = x * std::f64::consts::PI;
    angle.sin() / angle
}

/// The source pixels from `first` on that make an output pixel, with their weights.
struct PillowTaps {
    first: usize,
    weights: Vec<i32>,
}

/// The output pixels' positions. A crop of a resized image is computed as a part of the whole resize, with the same
/// operations on the same numbers as in Pillow.
struct PillowGrid {
    scale: f64,
    origin: f64,
    /// Output pixels left of the first one.
    skipped: f64,
}

impl PillowGrid {
    fn of(axis: Axis) -> Self {
        let whole = f64::from(axis.whole);
        let scaled = (whole * f64::from(axis.target) / axis.len).round();
        let scale = whole / scaled;
        let skipped = (axis.at / scale).round();
        let slack = whole * 1e-9;
        if (skipped * scale - axis.at).abs() <= slack && (f64::from(axis.target) * scale - axis.len).abs() <= slack {
            Self { scale, origin: 0.0, skipped }
        } else {
            Self { scale: axis.len / f64::from(axis.target), origin: axis.at, skipped: 0.0 }
        }
    }

    fn taps(&self, kernel: ExactKernel, target: u32, whole: u32) -> PillowTaps {
        let centre = self.origin + (self.skipped + f64::from(target) + 0.5) * self.scale;
        let widening = self.scale.max(1.0);
        let support = kernel.support() * widening;
        let narrowing = 1.0 / widening;
        // Cut off, not rounded.
        let first = (centre - support + 0.5).clamp(0.0, f64::from(whole)) as u32;
        let end = (centre + support + 0.5).clamp(0.0, f64::from(whole)) as u32;
        let weights: Vec<f64> = (first..end).map(|x| kernel.at((f64::from(x) - centre + 0.5) * narrowing)).collect();
        let total: f64 = weights.iter().sum();
        let mut fixed = Vec::with_capacity(weights.len());
        for weight in weights {
            let scaled = if total == 0.0 { 0.0 } else { weight / total } * f64::from(1 << PRECISION);
            fixed.push(if scaled < 0.0 { scaled - 0.5 } else { scaled + 0.5 } as i32);
        }
        PillowTaps { first: first as usize, weights: fixed }
    }
}

/// All taps along an axis.
fn taps(axis: Axis, kernel: ExactKernel) -> Vec<PillowTaps> {
    let grid = PillowGrid::of(axis);
    (0..axis.target).map(|target| grid.taps(kernel, target, axis.whole)).collect()
}

/// Memory that is reused from image to image.
#[derive(Debug, Default)]
pub(crate) struct ExactTwoPass {
    /// The image between the passes.
    between: Vec<u8>,
    /// A group of rows, sample by sample: all rows' first, then all rows' second, ….
    lanes: Vec<u8>,
    sums: Vec<i32>,
}

impl ExactTwoPass {
    /// Resamples into the plan's placement; the plan must have been checked.
    pub(crate) fn resize(&mut self, src: ImageView<'_>, plan: &ResizePlan, kernel: ExactKernel, dst: ImageViewMut<'_>) {
        let size = src.size();
        let line = size.width as usize * CHANNELS;
        let [x, y] = axes(plan, size);
        let columns = taps(x, kernel);
        let rows = taps(y, kernel);
        let mut out = Out::new(plan, dst);
        let arch = Arch::new();
        if vertical_first(plan, size) {
            let mut between = Out::whole(Size::new(size.width, y.target), &mut self.between);
            arch.dispatch(|| down(src.as_slice(), line, 0, &rows, &mut self.sums, &mut between));
            arch.dispatch(|| across(&self.between, line, &columns, &mut self.lanes, &mut out));
        } else {
            // Only the rows that the vertical pass reads.
            let first = rows.iter().map(|taps| taps.first).min().unwrap_or(0);
            let end = rows.iter().map(|taps| taps.first + taps.weights.len()).max().unwrap_or(0);
            let samples = &src.as_slice()[first * line..end * line];
            let narrow = x.target as usize * CHANNELS;
            let mut between = Out::whole(Size::new(x.target, (end - first) as u32), &mut self.between);
            arch.dispatch(|| across(samples, line, &columns, &mut self.lanes, &mut between));
            arch.dispatch(|| down(&self.between, narrow, first, &rows, &mut self.sums, &mut out));
        }
    }
}

/// The horizontal pass over all rows of `source`, `line` samples each, to the first rows of `out`.
#[inline(always)]
fn across(source: &[u8], line: usize, columns: &[PillowTaps], lanes: &mut Vec<u8>, out: &mut Out<'_>) {
    lanes.resize(line * LANES, 0);
    for (group, rows) in source.chunks(line * LANES).enumerate() {
        for (lane, row) in rows.chunks_exact(line).enumerate() {
            for (samples, &sample) in lanes.as_chunks_mut::<LANES>().0.iter_mut().zip(row) {
                samples[lane] = sample;
            }
        }
        let pixels = lanes.as_chunks::<{ CHANNELS * LANES }>().0;
        for (column, taps) in columns.iter().enumerate() {
            let mut sums = [HALF; CHANNELS * LANES];
            for (pixel, &weight) in pixels[taps.first..].iter().zip(&taps.weights) {
                for (sum, &sample) in sums.iter_mut().zip(pixel) {
                    *sum += weight * i32::from(sample);
                }
            }
            for lane in 0..rows.len() / line {
                let pixel = &mut out.row(group * LANES + lane)[column * CHANNELS..][..CHANNELS];
                for (channel, sample) in pixel.iter_mut().enumerate() {
                    *sample = rounded(sums[channel * LANES + lane]);
                }
            }
        }
    }
}

/// The vertical pass over rows of `line` samples, which begin at row `first`, to all rows of `out`.
#[inline(always)]
fn down(source: &[u8], line: usize, first: usize, rows: &[PillowTaps], sums: &mut Vec<i32>, out: &mut Out<'_>) {
    for (row, taps) in rows.iter().enumerate() {
        sums.clear();
        sums.resize(line, HALF);
        for (samples, &weight) in source.chunks_exact(line).skip(taps.first - first).zip(&taps.weights) {
            for (sum, &sample) in sums.iter_mut().zip(samples) {
                *sum += weight * i32::from(sample);
            }
        }
        for (sample, &sum) in out.row(row).iter_mut().zip(&*sums) {
            *sample = rounded(sum);
        }
    }
}

/// A sum without its fraction, limited to u8.
#[inline(always)]
fn rounded(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}
