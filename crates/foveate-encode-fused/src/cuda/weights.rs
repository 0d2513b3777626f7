//! A model's parameters on a device. Everything that can be folded into them is folded in f32 and rounded once.

use foveate_cuda::blaslt::Element;
use foveate_cuda::{Buffer, CudaError, Device};
use foveate_encode::EncodeError;
use foveate_model::parts::{self, Parts};
use foveate_model::{Model, ModelError};
use half::{bf16, f16};

use super::geometry::CudaGeometry;
use super::kernels::CudaNorm;

/// Subtracted from pixels before they are multiplied: the results are small integers, exact in every precision.
const CENTRE: f64 = 128.0;

/// A model's parameters.
pub(super) struct CudaWeights {
    /// `[hidden, padded]`, for centred pixels.
    pub(super) patch: Buffer,
    /// `[tokens, hidden]` f32: a token's value before its patch is added, including the patches' bias.
    pub(super) base: Buffer,
    pub(super) blocks: Vec<CudaBlock>,
    pub(super) norm: CudaNorm,
}

/// One transformer block's parameters.
pub(super) struct CudaBlock {
    pub(super) norm1: CudaNorm,
    /// Queries, keys and values.
    pub(super) qkv: CudaLinear,
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
        model: &Model,
        geometry: &CudaGeometry,
        element: Element,
        refused: &dyn Fn(CudaError) -> EncodeError,
    ) -> Result<Self, EncodeError> {
        let parts = Parts::new(model).map_err(unusable)?;
        let upload = WeightUpload { device, element, eps: model.network.layer_norm_eps as f32 };
        let embedding = parts.embedding().map_err(unusable)?;
        let blocks = (0..model.network.num_hidden_layers)
            .map(|layer| upload.block(parts.block(layer).map_err(unusable)?).map_err(refused))
            .collect::<Result<_, EncodeError>>()?;
        Ok(Self {
            patch: upload.values(&padded(&embedding.patch, geometry.padded)).map_err(refused)?,
            base: Buffer::from_slice(device, &base(&embedding, geometry)).map_err(refused)?,
            blocks,
            norm: upload.norm(&parts.final_norm().map_err(unusable)?).map_err(refused)?,
        })
    }
}

fn unusable(error: ModelError) -> EncodeError {
    crate::encoder::unusable(error)
}

/// Pads every row of a layer's weights with zeros to `width`.
fn padded(layer: &parts::Linear<'_>, width: usize) -> Vec<f32> {
    let mut out = vec![0.0; layer.bias.len() * width];
    for (out, row) in out.chunks_exact_mut(width).zip(layer.weight.chunks_exact(layer.inputs)) {
        out[..layer.inputs].copy_from_slice(row);
    }
    out
}

/// The tokens' base. For patches' tokens it includes their bias and the correction for centred pixels, summed in f64.
fn base(embedding: &parts::Embedding<'_>, geometry: &CudaGeometry) -> Vec<f32> {
    let patch = &embedding.patch;
    let rows = patch.weight.chunks_exact(patch.inputs);
    let sums = rows.map(|row| row.iter().map(|&weight| f64::from(weight)).sum::<f64>());
    let offsets: Vec<f64> = sums.zip(&*patch.bias).map(|(sum, &bias)| f64::from(bias) + CENTRE * sum).collect();
    let mut base = embedding.base.clone();
    for token in base.chunks_exact_mut(geometry.hidden).skip(geometry.prefix) {
        token.iter_mut().zip(&offsets).for_each(|(value, offset)| *value = (f64::from(*value) + offset) as f32);
    }
    base
}

/// Returns the largest power of two that the largest magnitude reaches; 1 for zeros alone.
fn power_of_two(values: &[f32]) -> f32 {
    let largest = values.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
    if largest > 0.0 { largest.log2().floor().exp2() } else { 1.0 }
}

/// Copies a model's parts to a device.
struct WeightUpload<'a> {
    device: &'a Device,
    element: Element,
    eps: f32,
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

    fn linear(&self, layer: &parts::Linear<'_>) -> Result<CudaLinear, CudaError> {
        let alpha = if self.element == Element::F16 { power_of_two(&layer.weight) } else { 1.0 };
        let weight: Vec<f32> = layer.weight.iter().map(|weight| weight / alpha).collect();
        Ok(CudaLinear { weight: self.values(&weight)?, alpha, bias: self.values(&layer.bias)? })
    }

    fn norm(&self, norm: &parts::Norm<'_>) -> Result<CudaNorm, CudaError> {
        let scale = Buffer::from_slice(self.device, &norm.scale)?;
        let shift = Buffer::from_slice(self.device, &norm.shift)?;
        Ok(CudaNorm { scale, shift, eps: self.eps })
    }

    fn block(&self, block: parts::Block<'_>) -> Result<CudaBlock, CudaError> {
        let mut qkv = block.query;
        for layer in [&block.key, &block.value] {
            qkv.weight.to_mut().extend_from_slice(&layer.weight);
            qkv.bias.to_mut().extend_from_slice(&layer.bias);
        }
        Ok(CudaBlock {
            norm1: self.norm(&block.norm1)?,
            qkv: self.linear(&qkv)?,
            output: self.linear(&block.output.scaled_by(block.scale1.as_deref()))?,
            norm2: self.norm(&block.norm2)?,
            mlp_input: self.linear(&block.mlp.input)?,
            mlp_output: self.linear(&block.mlp.output.scaled_by(block.scale2.as_deref()))?,
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
