//! Takes outlier channels out of integer products, which changes nothing in exact arithmetic.
//!
//! A token has one scale, so a channel with far larger values than the others costs them their precision. Such a
//! channel's values are divided by a factor, and its weights multiplied by it (as in SmoothQuant). The range of a
//! LayerNorm's channel is known from its factor and offset, that of attention's values from the weights, so no images
//! are needed. Factors are powers of two, so that nothing is rounded. Channels without outliers stay as they are:
//! balancing them too made the vectors of trained weights worse, not better.

use foveate_model::parts::{Block, Linear, Norm};

/// Normalized values rarely exceed this.
const USUAL: f32 = 4.0;
/// A channel is an outlier if its range ÷ weight is this many times the median.
const OUTLIER: f32 = 64.0;

/// Balances what each of the block's linear layers reads, but for the MLP's last: GELU lies before it.
pub(crate) fn balance(block: &mut Block<'_>) {
    // A mix of values has no more range than the values, which are sums of independent normalized ones.
    let mut range = Vec::new();
    for (row, bias) in rows(&block.value).zip(&*block.value.bias) {
        let squares = row.iter().zip(&*block.norm1.scale).map(|(weight, scale)| (weight * scale).powi(2));
        range.push(USUAL * squares.sum::<f32>().sqrt() + bias.abs());
    }
    let factors = factors(&range, &[&block.output]);
    let inverse: Vec<f32> = factors.iter().map(|factor| factor.recip()).collect();
    block.value = block.value.clone().scaled(&inverse);
    multiply_inputs(&mut block.output, &factors);

    balance_norm(&mut block.norm1, &mut [&mut block.query, &mut block.key, &mut block.value]);
    balance_norm(&mut block.norm2, &mut [&mut block.mlp.input]);
}

fn balance_norm(norm: &mut Norm<'_>, layers: &mut [&mut Linear<'_>]) {
    let pairs = norm.scale.iter().zip(&*norm.shift);
    let range: Vec<f32> = pairs.map(|(scale, shift)| USUAL * scale.abs() + shift.abs()).collect();
    let factors = factors(&range, &layers.iter().map(|layer| &**layer).collect::<Vec<_>>());
    layers.iter_mut().for_each(|layer| multiply_inputs(layer, &factors));
    for values in [&mut norm.scale, &mut norm.shift] {
        values.to_mut().iter_mut().zip(&factors).for_each(|(value, factor)| *value /= factor);
    }
}

/// Returns each channel's factor: 1 unless it is an outlier, else the one that brings its range ÷ weight to the median.
fn factors(range: &[f32], layers: &[&Linear<'_>]) -> Vec<f32> {
    let mut weights = vec![0.0f32; range.len()];
    for row in layers.iter().flat_map(|layer| rows(layer)) {
        weights.iter_mut().zip(row).for_each(|(most, weight)| *most = most.max(weight.abs()));
    }
    let ratios: Vec<f32> = range.iter().zip(&weights).map(|(range, weight)| range / weight).collect();
    let mut sorted = ratios.clone();
    sorted.sort_by(f32::total_cmp);
    let median = sorted[sorted.len() / 2];
    let mut factors = Vec::new();
    for ratio in ratios {
        // Not for channels that are never read: their ratio is infinite.
        let is_outlier = ratio.is_finite() && ratio > OUTLIER * median;
        factors.push(if is_outlier { (ratio / median).sqrt().log2().round().exp2() } else { 1.0 });
    }
    factors
}

fn multiply_inputs(layer: &mut Linear<'_>, factors: &[f32]) {
    let inputs = layer.inputs;
    for row in layer.weight.to_mut().chunks_exact_mut(inputs) {
        row.iter_mut().zip(factors).for_each(|(weight, factor)| *weight *= factor);
    }
}

fn rows<'a>(layer: &'a Linear<'_>) -> impl Iterator<Item = &'a [f32]> {
    layer.weight.chunks_exact(layer.inputs)
}
