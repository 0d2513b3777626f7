use crate::Config;

/// Resamples the position embeddings to a grid of `grid_h` by `grid_w` patches, as `transformers` does in f32.
///
/// `stored` is the checkpoint's `embeddings.position_embeddings`, `[1 + n·n, hidden]` row-major. The result is `[1 +
/// grid_h·grid_w, hidden]`, with the class token's row first and unchanged. If the grid equals the stored one, all
/// values are unchanged.
///
/// The two families differ. Plain DINOv2 uses `interpolate(mode="bicubic", align_corners=False)` (a = −0.75, not
/// antialiased, scale = ratio of sizes). The one with registers adds `antialias=True` (a = −0.5, support widened when
/// shrinking). The arithmetic follows PyTorch's CPU kernels on x86-64: in f32, in their order. Multiplication and
/// addition are fused in the computation of the filter's weights, as PyTorch's compiler does.
///
/// # Panics
/// If `stored` does not have the shape that `config` defines, or the grid is empty.
pub fn interpolate_positions(config: &Config, stored: &[f32], grid_h: usize, grid_w: usize) -> Vec<f32> {
    let side = config.stored_grid().height;
    let dim = config.hidden_size;
    assert_eq!(stored.len(), (1 + side * side) * dim, "position embeddings do not fit the config");
    assert!(grid_h > 0 && grid_w > 0, "an empty grid has no positions");
    if (grid_h, grid_w) == (side, side) {
        return stored.to_vec();
    }
    let (class, patches) = stored.split_at(dim);
    let taps = if config.with_registers { antialiased_taps } else { plain_taps };
    let columns: Vec<BicubicTaps> = (0..grid_w).map(|x| taps(side, grid_w, x)).collect();
    let rows: Vec<BicubicTaps> = (0..grid_h).map(|y| taps(side, grid_h, y)).collect();

    // Along each row first, then down the columns.
    let mut wide = vec![0.0; side * grid_w * dim];
    for (line, out) in patches.chunks_exact(side * dim).zip(wide.chunks_exact_mut(grid_w * dim)) {
        for (taps, cell) in columns.iter().zip(out.chunks_exact_mut(dim)) {
            taps.blend(line, dim, cell);
        }
    }
    let mut result = vec![0.0; (1 + grid_h * grid_w) * dim];
    let (first, rest) = result.split_at_mut(dim);
    first.copy_from_slice(class);
    for (taps, out) in rows.iter().zip(rest.chunks_exact_mut(grid_w * dim)) {
        taps.blend(&wide, grid_w * dim, out);
    }
    result
}

/// One output sample's inputs along one dimension, with their weights.
struct BicubicTaps(Vec<(usize, f32)>);

impl BicubicTaps {
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
fn plain_taps(input: usize, output: usize, at: usize) -> BicubicTaps {
    const A: f32 = -0.75;
    let scale = input as f32 / output as f32;
    let source = scale.mul_add(at as f32 + 0.5, -0.5);
    let t = source - source.floor();
    let weights = [outer(t + 1.0, A), inner(t, A), inner(1.0 - t, A), outer(1.0 - t + 1.0, A)];
    let first = source.floor() as isize - 1;
    let taps = (first..).zip(weights).map(|(tap, weight)| (tap.clamp(0, input as isize - 1) as usize, weight));
    BicubicTaps(taps.collect())
}

/// PyTorch's `_upsample_bicubic2d_aa`: a = −0.5, the filter stretched by the scale when shrinking, weights normalized.
fn antialiased_taps(input: usize, output: usize, at: usize) -> BicubicTaps {
    let scale = input as f32 / output as f32;
    let stretch = scale.max(1.0);
    let center = scale * (at as f32 + 0.5);
    let support = 2.0 * stretch;
    let first = (center - support + 0.5).max(0.0) as usize;
    let end = ((center + support + 0.5) as usize).min(input);
    let inverse = 1.0 / stretch;
    let weights: Vec<f32> = (first..end).map(|i| cubic((i as f32 - center + 0.5) * inverse)).collect();
    let total: f32 = weights.iter().sum();
    BicubicTaps((first..end).zip(weights.iter().map(|weight| weight / total)).collect())
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
