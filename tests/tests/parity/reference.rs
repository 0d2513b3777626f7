//! The forward in f64, one loop per step: the reference for encoders where `transformers` has no golden.

use foveate_core::{CHANNELS, PixelBatch};
use foveate_model::parts::{Block, Embedding, Linear, Mlp, Norm, Parts};
use foveate_model::{Activation, Model, ModelError, Network};

/// One row per token.
type Rows = Vec<Vec<f64>>;

/// The class token and the mean of the patches of one image, concatenated as in `Pooling::ClsMean`.
pub(super) fn class_and_mean(model: &Model, image: PixelBatch<'_>) -> Result<Vec<f64>, ModelError> {
    let (network, parts) = (&model.network, Parts::new(model)?);
    let mut x = embed(&parts.embedding()?, network, image);
    for layer in 0..network.num_hidden_layers {
        advance(&parts.block(layer)?, network, &mut x);
    }
    let x = normalize(&x, &parts.final_norm()?, network);
    let patches = &x[network.prefix_tokens()..];
    let mean = (0..network.hidden_size).map(|c| patches.iter().map(|row| row[c]).sum::<f64>() / patches.len() as f64);
    Ok(x[0].iter().copied().chain(mean).collect())
}

fn embed(embedding: &Embedding<'_>, network: &Network, image: PixelBatch<'_>) -> Rows {
    let (patch, width) = (network.patch_size, image.size().width as usize);
    let (rows, columns) = (image.size().height as usize / patch, width / patch);
    let sample = |row: usize, column: usize, at: usize| {
        let (y, x) = (row * patch + at / (patch * CHANNELS), column * patch * CHANNELS + at % (patch * CHANNELS));
        f64::from(image.as_slice()[y * width * CHANNELS + x])
    };
    let patches: Rows = (0..rows * columns)
        .map(|i| (0..patch * patch * CHANNELS).map(|at| sample(i / columns, i % columns, at)).collect())
        .collect();
    let mut x: Rows = embedding.base.chunks(network.hidden_size).map(wide).collect();
    add(&mut x[network.prefix_tokens()..], &linear(&patches, &embedding.patch), None);
    x
}

fn advance(block: &Block<'_>, network: &Network, x: &mut Rows) {
    let attended = attention(&normalize(x, &block.norm1, network), block, network.num_attention_heads);
    add(x, &attended, block.scale1.as_deref());
    let fed = mlp(&normalize(x, &block.norm2, network), &block.mlp);
    add(x, &fed, block.scale2.as_deref());
}

fn attention(x: &Rows, block: &Block<'_>, heads: usize) -> Rows {
    let [q, k, v] = [&block.query, &block.key, &block.value].map(|layer| linear(x, layer));
    let width = q[0].len() / heads;
    let attend = |token: &Vec<f64>| {
        let head = |at: usize| {
            let own = at * width..(at + 1) * width;
            let score = |key: &Vec<f64>| dot(&token[own.clone()], &key[own.clone()]) / (width as f64).sqrt();
            let shares = softmax(k.iter().map(score).collect());
            let mix = |c: usize| shares.iter().zip(&v).map(|(share, value)| share * value[c]).sum();
            own.clone().map(mix).collect::<Vec<f64>>()
        };
        (0..heads).flat_map(head).collect()
    };
    linear(&q.iter().map(attend).collect(), &block.output)
}

fn mlp(x: &Rows, mlp: &Mlp<'_>) -> Rows {
    let activate = |row: Vec<f64>| -> Vec<f64> {
        if mlp.activation != Activation::GatedSilu {
            return row.into_iter().map(|v| 0.5 * v * (1.0 + erf(v / 2f64.sqrt()))).collect();
        }
        let (gate, up) = row.split_at(row.len() / 2);
        gate.iter().zip(up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect()
    };
    linear(&linear(x, &mlp.input).into_iter().map(activate).collect(), &mlp.output)
}

fn linear(x: &Rows, layer: &Linear<'_>) -> Rows {
    let weight: Rows = layer.weight.chunks(layer.inputs).map(wide).collect();
    let outputs =
        |row: &Vec<f64>| weight.iter().zip(&*layer.bias).map(|(w, &bias)| dot(row, w) + f64::from(bias)).collect();
    x.iter().map(outputs).collect()
}

fn normalize(x: &Rows, norm: &Norm<'_>, network: &Network) -> Rows {
    let row = |row: &Vec<f64>| {
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / row.len() as f64;
        let factors = norm.scale.iter().zip(&*norm.shift).map(|(&scale, &shift)| (f64::from(scale), f64::from(shift)));
        let scaled = row.iter().zip(factors);
        scaled
            .map(|(v, (scale, shift))| (v - mean) / (variance + network.layer_norm_eps).sqrt() * scale + shift)
            .collect()
    };
    x.iter().map(row).collect()
}

/// Adds `y`, each component multiplied by its factor.
fn add(x: &mut [Vec<f64>], y: &Rows, factors: Option<&[f32]>) {
    for (x, y) in x.iter_mut().zip(y) {
        for (c, (x, y)) in x.iter_mut().zip(y).enumerate() {
            *x += y * factors.map_or(1.0, |factors| f64::from(factors[c]));
        }
    }
}

fn softmax(scores: Vec<f64>) -> Vec<f64> {
    let most = scores.iter().copied().fold(f64::MIN, f64::max);
    let powers: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| value.into()).collect()
}

/// The error function, by the series whose terms all have the same sign, which avoids cancellation.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term.abs() > f64::EPSILON * sum.abs() / 8.0 {
        odd += 2.0;
        term *= 2.0 * x * x / odd;
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}
