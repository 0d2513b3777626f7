use crate::{Grid, Interpolation, PositionTable};

/// Resamples the patches' position embeddings to another grid, as `transformers` does in f32.
///
/// `stored` is `[patches, hidden]` row-major, without a class token's row; so is the result. If `grid` equals the
/// stored one, all values are unchanged.
///
/// The arithmetic follows PyTorch's CPU kernels on x86-64: in f32, in their order. Multiplication and addition are
/// fused in the computation of the cubic filter's weights, as PyTorch's compiler does.
///
/// # Panics
/// If `stored` does not have the shape that `table` defines, or the grid is empty.
pub fn interpolate_positions(table: PositionTable, stored: &[f32], hidden: usize, grid: Grid) -> Vec<f32> {
    assert_eq!(stored.len(), table.grid.patches() * hidden, "position embeddings do not fit the table");
    assert!(grid.patches() > 0, "an empty grid has no positions");
    if grid == table.grid {
        return stored.to_vec();
    }
    let taps = match table.interpolation {
        Interpolation::BicubicAntialias => cubic_taps,
        Interpolation::BilinearAntialias => linear_taps,
        Interpolation::Bicubic | Interpolation::Refused => plain_taps,
    };
    let columns: Vec<PositionTaps> = (0..grid.width).map(|x| taps(table.grid.width, grid.width, x)).collect();
    let rows: Vec<PositionTaps> = (0..grid.height).map(|y| taps(table.grid.height, grid.height, y)).collect();

    // Along each row first, then down the columns.
    let mut wide = vec![0.0; table.grid.height * grid.width * hidden];
    for (line, out) in stored.chunks_exact(table.grid.width * hidden).zip(wide.chunks_exact_mut(grid.width * hidden)) {
        for (taps, cell) in columns.iter().zip(out.chunks_exact_mut(hidden)) {
            taps.blend(line, hidden, cell);
        }
    }
    let mut result = vec![0.0; grid.patches() * hidden];
    for (taps, out) in rows.iter().zip(result.chunks_exact_mut(grid.width * hidden)) {
        taps.blend(&wide, grid.width * hidden, out);
    }
    result
}

/// One output sample's inputs along one dimension, with their weights.
struct PositionTaps(Vec<(usize, f32)>);

impl PositionTaps {
    /// `out = Σ weight · source[index]`, where a sample is `stride` consecutive values.
    fn blend(&self, source: &[f32], stride: usize, out: &mut [f32]) {
        out.fill(0.0);
        for &(index, weight) in &self.0 {
            for (o, v) in out.iter_mut().zip(&source[index * stride..][..stride]) {
                *o += weight * v;
            }
        }
    }
}

/// PyTorch's `upsample_bicubic2d` without antialiasing: four taps, a = −0.75, indices clamped to the border.
fn plain_taps(input: usize, output: usize, at: usize) -> PositionTaps {
    const A: f32 = -0.75;
    let scale = input as f32 / output as f32;
    let source = scale.mul_add(at as f32 + 0.5, -0.5);
    let t = source - source.floor();
    let weights = [outer(t + 1.0, A), inner(t, A), inner(1.0 - t, A), outer(1.0 - t + 1.0, A)];
    let first = source.floor() as isize - 1;
    let taps = (first..).zip(weights).map(|(tap, weight)| (tap.clamp(0, input as isize - 1) as usize, weight));
    PositionTaps(taps.collect())
}

/// PyTorch's `_upsample_bicubic2d_aa`: a = −0.5.
fn cubic_taps(input: usize, output: usize, at: usize) -> PositionTaps {
    antialiased_taps(input, output, at, 2.0, cubic)
}

/// PyTorch's `_upsample_bilinear2d_aa`.
fn linear_taps(input: usize, output: usize, at: usize) -> PositionTaps {
    antialiased_taps(input, output, at, 1.0, |x| (1.0 - x.abs()).max(0.0))
}

/// A `filter` that is zero beyond `reach` samples, stretched by the scale when shrinking, weights normalized.
fn antialiased_taps(input: usize, output: usize, at: usize, reach: f32, filter: fn(f32) -> f32) -> PositionTaps {
    let scale = input as f32 / output as f32;
    let stretch = scale.max(1.0);
    let center = scale * (at as f32 + 0.5);
    let support = reach * stretch;
    let first = (center - support + 0.5).max(0.0) as usize;
    let end = ((center + support + 0.5) as usize).min(input);
    let inverse = 1.0 / stretch;
    let weights: Vec<f32> = (first..end).map(|i| filter((i as f32 - center + 0.5) * inverse)).collect();
    let total: f32 = weights.iter().sum();
    PositionTaps((first..end).zip(weights.iter().map(|weight| weight / total)).collect())
}

/// The antialiased kernel, zero beyond two samples.
fn cubic(x: f32) -> f32 {
    const A: f32 = -0.5;
    match x.abs() {
        x if x < 1.0 => inner(x, A),
        x if x < 2.0 => outer(x, A),
        _ => 0.0,
    }
}

/// Keys' cubic kernel for 0 ≤ x ≤ 1.
fn inner(x: f32, a: f32) -> f32 {
    ((a + 2.0).mul_add(x, -(a + 3.0)) * x).mul_add(x, 1.0)
}

/// Keys' cubic kernel for 1 < x < 2.
fn outer(x: f32, a: f32) -> f32 {
    a.mul_add(x, -5.0 * a).mul_add(x, 8.0 * a).mul_add(x, -4.0 * a)
}
