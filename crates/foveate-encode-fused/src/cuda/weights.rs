//! A model's parameters on a device. Everything that can be folded into them is folded in f32 and rounded once.

use foveate_cuda::blaslt::Element;
use foveate_cuda::{Buffer, CudaError, Device};
use foveate_encode::EncodeError;
use foveate_model::parts::{self, Parts};
use foveate_model::{ModelError, Network, RotaryTable};
use half::{bf16, f16};

use super::geometry::{BlockSizes, CudaGeometry};
use super::kernels::{CudaNorm, CudaRotary};
use crate::network::pad;

/// Subtracted from pixels before they are multiplied: the results are small integers, exact in every precision.
const CENTRE: f64 = 128.0;

/// A model's parameters, padded as [`CudaGeometry`] says.
pub(super) struct CudaWeights {
    /// `[hidden, padded]`, for centred pixels; for texts the words, `[vocabulary, hidden]`.
    pub(super) patch: Buffer,
    /// `[tokens, hidden]` f32: a token's value before its patch is added, including the patches' bias, or its word.
    pub(super) base: Buffer,
    pub(super) stem_norm: Option<CudaNorm>,
    pub(super) blocks: Vec<CudaBlock>,
    /// The block that leaves one token per image, if one does: attention pooling, or the model's last block.
    pub(super) last: Option<CudaBlock>,
    pub(super) norm: CudaNorm,
    /// From the token to the vector.
    pub(super) projection: Option<CudaLinear>,
}

/// One transformer block's parameters, or those of attention pooling.
pub(super) struct CudaBlock {
    pub(super) sizes: BlockSizes,
    pub(super) norm1: CudaNorm,
    /// Queries, keys and values.
    pub(super) qkv: CudaLinear,
    pub(super) rotary: Option<CudaRotary>,
    /// Attention's output, LayerScale folded in.
    pub(super) output: CudaLinear,
    pub(super) norm2: CudaNorm,
    pub(super) mlp_input: CudaLinear,
    /// LayerScale folded in.
    pub(super) mlp_output: CudaLinear,
}

/// `y = alpha · x · weightᵀ + bias`.
pub(super) struct CudaLinear {
    /// `[outputs, inputs]`.
    pub(super) weight: Buffer,
    /// A power of two, so that small weights are not subnormal in f16.
    pub(super) alpha: f32,
    /// `[outputs]`.
    pub(super) bias: Buffer,
}

impl CudaWeights {
    /// # Errors
    /// [`EncodeError::Model`] if a tensor is missing or has another shape; `refused` converts the device's errors.
    pub(super) fn new(
        device: &Device,
        parts: &Parts<'_>,
        network: &Network,
        geometry: &CudaGeometry,
        element: Element,
        refused: &dyn Fn(CudaError) -> EncodeError,
    ) -> Result<Self, EncodeError> {
        let eps = network.layer_norm_eps as f32;
        let upload = WeightUpload { device, element, eps, width: geometry.width, hidden: geometry.hidden };
        let rotary = parts.rotary().map(|table| upload.rotary(&table)).transpose().map_err(refused)?;
        let mut blocks = Vec::new();
        for layer in 0..network.num_hidden_layers {
            let block = parts.block(layer).map_err(unusable)?;
            blocks.push(upload.block(block, geometry.layers, rotary.clone()).map_err(refused)?);
        }
        let norm = parts.final_norm().map_err(unusable)?;
        let head = parts.head(geometry.pooling).map_err(unusable)?;
        let last = match head.probe.zip(geometry.probe) {
            Some((probe, sizes)) => Some(upload.block(as_block(probe, norm.clone()), sizes, None).map_err(refused)?),
            None if geometry.leaves_one_token() => blocks.pop(),
            None => None,
        };
        let tokens = [geometry.width, geometry.hidden];
        let vector = [geometry.dim, CudaGeometry::pitch(geometry.dim)];
        let patch;
        let base;
        let mut stem_norm = None;
        if network.words.is_some() {
            let layers = parts.words().map_err(unusable)?;
            patch = pad(&layers.table, tokens);
            base = pad(&layers.positions, tokens);
        } else {
            let embedding = parts.embedding().map_err(unusable)?;
            let samples = [embedding.patch.inputs, geometry.padded];
            patch = pad(&pad(&embedding.patch.weight, samples), tokens.map(|rows| rows * geometry.padded));
            base = pad(&base_of(&embedding, geometry), tokens);
            stem_norm = embedding.norm.map(|norm| upload.norm(&norm)).transpose().map_err(refused)?;
        }
        Ok(Self {
            patch: upload.values(&patch).map_err(refused)?,
            base: Buffer::from_slice(device, &base).map_err(refused)?,
            stem_norm,
            blocks,
            last,
            norm: upload.norm(&norm).map_err(refused)?,
            projection: head
                .projection
                .map(|layer| upload.linear(&layer, tokens, vector))
                .transpose()
                .map_err(refused)?,
        })
    }
}

/// Attention pooling as a block: a query that does not depend on the token is the bias of a layer of zeros.
fn as_block<'a>(probe: parts::ProbeLayers<'a>, final_norm: parts::Norm<'a>) -> parts::Block<'a> {
    let inputs = probe.query.len();
    parts::Block {
        norm1: final_norm,
        query: parts::Linear { weight: vec![0.0; inputs * inputs].into(), bias: probe.query.into(), inputs },
        key: probe.key,
        value: probe.value,
        output: probe.output,
        scale1: None,
        norm2: probe.norm,
        mlp: probe.mlp,
        scale2: None,
    }
}

fn unusable(error: ModelError) -> EncodeError {
    crate::encoder::unusable(error)
}

/// The tokens' base. For patches' tokens it includes their bias and the correction for centred pixels, summed in f64.
fn base_of(embedding: &parts::Embedding<'_>, geometry: &CudaGeometry) -> Vec<f32> {
    let patch = &embedding.patch;
    let rows = patch.weight.chunks_exact(patch.inputs);
    let sums = rows.map(|row| row.iter().map(|&weight| f64::from(weight)).sum::<f64>());
    let offsets: Vec<f64> = sums.zip(&*patch.bias).map(|(sum, &bias)| f64::from(bias) + CENTRE * sum).collect();
    let mut base = embedding.base.clone();
    for token in base.chunks_exact_mut(geometry.width).skip(geometry.prefix) {
        token.iter_mut().zip(&offsets).for_each(|(value, offset)| *value = (f64::from(*value) + offset) as f32);
    }
    base
}

/// Returns the largest power of two that the largest magnitude reaches; 1 for zeros alone.
fn power_of_two(values: &[f32]) -> f32 {
    let largest = values.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
    if largest > 0.0 { largest.log2().floor().exp2() } else { 1.0 }
}

/// Copies a model's parts to a device. Pairs of numbers are runs of values: their length, and the padded one.
struct WeightUpload<'a> {
    device: &'a Device,
    element: Element,
    eps: f32,
    width: usize,
    hidden: usize,
}

impl WeightUpload<'_> {
    /// Copies values in the element type, rounded to nearest.
    fn values(&self, values: &[f32]) -> Result<Buffer, CudaError> {
        match self.element {
            Element::F32 => Buffer::from_slice(self.device, values),
            Element::F16 => self.rounded(values, f16::from_f32),
            Element::Bf16 => self.rounded(values, bf16::from_f32),
        }
    }

    fn rounded<T: foveate_cuda::Plain>(&self, values: &[f32], round: fn(f32) -> T) -> Result<Buffer, CudaError> {
        let values: Vec<T> = values.iter().map(|&value| round(value)).collect();
        Buffer::from_slice(self.device, &values)
    }

    /// Copies a layer with `inputs` and `outputs` padded.
    fn linear(
        &self,
        layer: &parts::Linear<'_>,
        inputs: [usize; 2],
        outputs: [usize; 2],
    ) -> Result<CudaLinear, CudaError> {
        let alpha = if self.element == Element::F16 { power_of_two(&layer.weight) } else { 1.0 };
        let weight: Vec<f32> = layer.weight.iter().map(|weight| weight / alpha).collect();
        let width = layer.inputs / inputs[0] * inputs[1];
        let weight = pad(&pad(&weight, inputs), outputs.map(|rows| rows * width));
        Ok(CudaLinear { weight: self.values(&weight)?, alpha, bias: self.values(&pad(&layer.bias, outputs))? })
    }

    fn norm(&self, norm: &parts::Norm<'_>) -> Result<CudaNorm, CudaError> {
        let scale = Buffer::from_slice(self.device, &pad(&norm.scale, [self.width, self.hidden]))?;
        let shift = Buffer::from_slice(self.device, &pad(&norm.shift, [self.width, self.hidden]))?;
        Ok(CudaNorm { scale, shift, eps: self.eps })
    }

    fn rotary(&self, table: &RotaryTable) -> Result<CudaRotary, CudaError> {
        let cos = Buffer::from_slice(self.device, &table.cos)?;
        Ok(CudaRotary { cos, sin: Buffer::from_slice(self.device, &table.sin)?, half: table.half })
    }

    fn block(
        &self,
        block: parts::Block<'_>,
        sizes: BlockSizes,
        rotary: Option<CudaRotary>,
    ) -> Result<CudaBlock, CudaError> {
        let mut qkv = block.query;
        for layer in [&block.key, &block.value] {
            qkv.weight.to_mut().extend_from_slice(&layer.weight);
            qkv.bias.to_mut().extend_from_slice(&layer.bias);
        }
        let tokens = [self.width, self.hidden];
        let heads = tokens.map(|width| width / sizes.heads);
        let mlp = [block.mlp.output.inputs, sizes.mlp];
        Ok(CudaBlock {
            sizes,
            norm1: self.norm(&block.norm1)?,
            qkv: self.linear(&qkv, tokens, heads)?,
            rotary,
            output: self.linear(&block.output.scaled_by(block.scale1.as_deref()), heads, tokens)?,
            norm2: self.norm(&block.norm2)?,
            mlp_input: self.linear(&block.mlp.input, tokens, mlp)?,
            mlp_output: self.linear(&block.mlp.output.scaled_by(block.scale2.as_deref()), mlp, tokens)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LayerScale starts at 1e-5 in training. Folded in, it makes weights of 0.02 subnormal, with a bit or two left.
    #[test]
    fn small_weights_keep_their_precision_in_f16() {
        let weights: Vec<f32> = (1..=100).map(|n| 2e-9 * n as f32).collect();
        let alpha = power_of_two(&weights);
        for &weight in &weights {
            let kept = f16::from_f32(weight / alpha).to_f32() * alpha;
            assert!((kept / weight - 1.0).abs() <= 1.0 / 2048.0, "{kept}, not {weight}");
        }
        assert_eq!([power_of_two(&[0.0, -3.0]), power_of_two(&[0.0])], [2.0, 1.0]);
    }
}
