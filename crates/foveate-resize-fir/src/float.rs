//! torchvision's antialiased bilinear filter on f32, as PyTorch's CPU kernel computes it: the horizontal pass first,
//! each sample's sum in order.

use foveate_core::{CHANNELS, ImageView};
use foveate_resize::ResizePlan;
use foveate_resize::axis::{Axis, axes};

/// One output sample's inputs along one axis, with their weights.
struct FloatTaps {
    first: usize,
    weights: Vec<f32>,
}

/// Memory that is reused from image to image.
#[derive(Debug, Default)]
pub(crate) struct FloatLinear {
    between: Vec<f32>,
    row: Vec<f32>,
}

impl FloatLinear {
    /// Resamples into the plan's placement; the plan must have been checked, and `dst` have its output's bytes.
    pub(crate) fn resize(&mut self, src: ImageView<'_>, plan: &ResizePlan, dst: &mut [u8]) {
        let [x, y] = axes(plan, src.size());
        let columns: Vec<FloatTaps> = (0..x.target).map(|at| taps(x, at)).collect();
        let rows: Vec<FloatTaps> = (0..y.target).map(|at| taps(y, at)).collect();
        let line = src.size().width as usize * CHANNELS;
        let narrow = columns.len() * CHANNELS;
        let height = src.size().height as usize;
        self.between.resize((height * narrow).max(self.between.len()), 0.0);
        for (source, out) in src.as_slice().chunks_exact(line).zip(self.between.chunks_exact_mut(narrow)) {
            across(source, &columns, out);
        }
        self.row.resize(narrow, 0.0);
        let place = plan.placement;
        let stride = plan.output.width as usize * CHANNELS;
        for (row, taps) in rows.iter().enumerate() {
            self.row.fill(0.0);
            let lines = self.between.chunks_exact(narrow).skip(taps.first);
            for (line, &weight) in lines.zip(&taps.weights) {
                self.row.iter_mut().zip(line).for_each(|(sum, value)| *sum += weight * value);
            }
            let first = (place.y as usize + row) * stride + place.x as usize * CHANNELS;
            let out = dst[first * 4..(first + narrow) * 4].as_chunks_mut().0;
            out.iter_mut().zip(&self.row).for_each(|(out, value)| *out = value.to_ne_bytes());
        }
    }
}

/// The horizontal pass of a row.
fn across(source: &[u8], columns: &[FloatTaps], out: &mut [f32]) {
    let pixels = source.as_chunks::<CHANNELS>().0;
    for (taps, out) in columns.iter().zip(out.as_chunks_mut::<CHANNELS>().0) {
        let mut sums = [0.0f32; CHANNELS];
        for (pixel, &weight) in pixels[taps.first..].iter().zip(&taps.weights) {
            for channel in 0..CHANNELS {
                sums[channel] += weight * f32::from(pixel[channel]);
            }
        }
        *out = sums;
    }
}

/// The triangle, stretched by the scale when shrinking, weights normalized.
fn taps(axis: Axis, at: u32) -> FloatTaps {
    let scale = (axis.len / f64::from(axis.target)) as f32;
    let support = scale.max(1.0);
    let center = axis.at as f32 + scale * (at as f32 + 0.5);
    let first = (center - support + 0.5).max(0.0) as usize;
    let end = ((center + support + 0.5) as usize).min(axis.whole as usize);
    let inverse = 1.0 / support;
    let weights = (first..end).map(|i| (1.0 - ((i as f32 - center + 0.5) * inverse).abs()).max(0.0));
    let weights: Vec<f32> = weights.collect();
    let total: f32 = weights.iter().sum();
    FloatTaps { first, weights: weights.iter().map(|weight| weight / total).collect() }
}
