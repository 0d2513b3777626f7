//! The forward, one candle operation per step.

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::ops::{layer_norm, silu, softmax_last_dim};
use foveate_core::{CHANNELS, PixelBatch};
use foveate_dinov2::parts::{self, Parts};
use foveate_dinov2::{Config, Model, ModelError};
use foveate_encode::{EncodeError, Pooling};

/// A model's weights on a device.
pub(crate) struct CandleNetwork {
    config: Config,
    device: Device,
    dtype: DType,
    patch: CandleLinear,
    /// The class token, the registers and all positions, `[tokens, hidden]`.
    base: Tensor,
    blocks: Vec<CandleBlock>,
    norm: CandleNorm,
}

struct CandleLinear {
    /// `[outputs, inputs]`.
    weight: Tensor,
    bias: Tensor,
}

struct CandleNorm {
    scale: Tensor,
    shift: Tensor,
    eps: f32,
}

struct CandleBlock {
    norm1: CandleNorm,
    query: CandleLinear,
    key: CandleLinear,
    value: CandleLinear,
    output: CandleLinear,
    scale1: Tensor,
    norm2: CandleNorm,
    mlp_input: CandleLinear,
    mlp_output: CandleLinear,
    swiglu: bool,
    scale2: Tensor,
}

impl CandleNetwork {
    /// Copies the weights of `model` to `device` in `dtype`.
    ///
    /// # Errors
    /// [`EncodeError::Model`] if a tensor is missing or the input is not a whole number of patches,
    /// [`EncodeError::Engine`] if candle refuses a tensor.
    pub(crate) fn new(model: &Model, device: Device, dtype: DType) -> std::result::Result<Self, EncodeError> {
        let parts = Parts::new(model).map_err(unusable)?;
        let load = CandleLoader { device: &device, dtype, eps: model.config.layer_norm_eps as f32 };
        let embedding = parts.embedding().map_err(unusable)?;
        let norm = parts.final_norm().map_err(unusable)?;
        let blocks = (0..model.config.num_hidden_layers)
            .map(|layer| load.block(parts.block(layer).map_err(unusable)?).map_err(engine))
            .collect::<std::result::Result<_, _>>()?;
        let base_shape = [parts.tokens(), model.config.hidden_size];
        Ok(Self {
            config: model.config.clone(),
            dtype,
            patch: load.linear(&embedding.patch).map_err(engine)?,
            base: load.tensor(&embedding.base, &base_shape).map_err(engine)?,
            blocks,
            norm: load.norm(&norm).map_err(engine)?,
            device,
        })
    }

    /// Copies the batch to the device and cuts it into patches, `[n, patches, patch * patch * 3]`.
    pub(crate) fn upload(&self, batch: PixelBatch<'_>) -> Result<Tensor> {
        let n = batch.len();
        let patch = self.config.patch_size;
        let rows = batch.size().height as usize / patch;
        let columns = batch.size().width as usize / patch;
        let shape = (n * rows, patch, columns, patch * CHANNELS);
        let pixels = Tensor::from_slice(batch.as_slice(), shape, &self.device)?.to_dtype(self.dtype)?;
        let patches = pixels.transpose(1, 2)?.contiguous()?;
        patches.reshape((n, rows * columns, patch * patch * CHANNELS))
    }

    /// Returns the pooled vectors of uploaded patches, `[n, dim]` in f32.
    pub(crate) fn vectors(&self, patches: &Tensor, pooling: Pooling) -> Result<Tensor> {
        let x = self.last_hidden_state(patches)?;
        let prefix = self.config.prefix_tokens();
        let mut parts = Vec::new();
        if pooling != Pooling::Mean {
            parts.push(x.narrow(1, 0, 1)?.squeeze(1)?);
        }
        if pooling != Pooling::Cls {
            parts.push(x.narrow(1, prefix, x.dim(1)? - prefix)?.mean(1)?);
        }
        Tensor::cat(&parts, 1)?.to_dtype(DType::F32)
    }

    /// Returns every image's tokens after the final LayerNorm, `[n, tokens, hidden]`.
    fn last_hidden_state(&self, patches: &Tensor) -> Result<Tensor> {
        let mut x = self.embed(patches)?;
        for block in &self.blocks {
            x = block.forward(&x, self.config.num_attention_heads)?;
        }
        self.norm.forward(&x)
    }

    fn embed(&self, patches: &Tensor) -> Result<Tensor> {
        let tokens = self.patch.forward(patches)?.pad_with_zeros(1, self.config.prefix_tokens(), 0)?;
        tokens.broadcast_add(&self.base)
    }

    /// Waits until the device has finished all enqueued work.
    pub(crate) fn wait(&self) -> Result<()> {
        self.device.synchronize()
    }
}

impl CandleBlock {
    fn forward(&self, x: &Tensor, heads: usize) -> Result<Tensor> {
        let attended = self.attention(&self.norm1.forward(x)?, heads)?.broadcast_mul(&self.scale1)?;
        let x = (x + attended)?;
        let fed = self.mlp(&self.norm2.forward(&x)?)?.broadcast_mul(&self.scale2)?;
        x + fed
    }

    fn attention(&self, x: &Tensor, heads: usize) -> Result<Tensor> {
        let (n, tokens, hidden) = x.dims3()?;
        let q = self.query.heads(x, heads)?;
        let k = self.key.heads(x, heads)?;
        let v = self.value.heads(x, heads)?;
        let scores = (q.matmul(&k.t()?)? / ((hidden / heads) as f64).sqrt())?;
        let context = softmax_last_dim(&scores)?.matmul(&v)?;
        self.output.forward(&context.transpose(1, 2)?.reshape((n, tokens, hidden))?)
    }

    fn mlp(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.mlp_input.forward(x)?;
        let x = if self.swiglu {
            let halves = x.chunk(2, D::Minus1)?;
            (silu(&halves[0])? * &halves[1])?
        } else {
            x.gelu_erf()?
        };
        self.mlp_output.forward(&x)
    }
}

impl CandleLinear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (n, tokens, inputs) = x.dims3()?;
        let y = x.reshape((n * tokens, inputs))?.matmul(&self.weight.t()?)?.broadcast_add(&self.bias)?;
        y.reshape((n, tokens, ()))
    }

    /// Returns the output split into `heads`, `[n, heads, tokens, hidden / heads]`.
    fn heads(&self, x: &Tensor, heads: usize) -> Result<Tensor> {
        let (n, tokens, hidden) = x.dims3()?;
        self.forward(x)?.reshape((n, tokens, heads, hidden / heads))?.transpose(1, 2)?.contiguous()
    }
}

impl CandleNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        layer_norm(x, &self.scale, &self.shift, self.eps)
    }
}

/// Copies a model's parts to a device.
struct CandleLoader<'a> {
    device: &'a Device,
    dtype: DType,
    eps: f32,
}

impl CandleLoader<'_> {
    fn tensor(&self, values: &[f32], shape: &[usize]) -> Result<Tensor> {
        Tensor::from_slice(values, shape, self.device)?.to_dtype(self.dtype)
    }

    fn linear(&self, layer: &parts::Linear<'_>) -> Result<CandleLinear> {
        let outputs = layer.bias.len();
        Ok(CandleLinear {
            weight: self.tensor(&layer.weight, &[outputs, layer.inputs])?,
            bias: self.tensor(&layer.bias, &[outputs])?,
        })
    }

    fn norm(&self, norm: &parts::Norm<'_>) -> Result<CandleNorm> {
        let shape = [norm.scale.len()];
        let scale = self.tensor(&norm.scale, &shape)?;
        let shift = self.tensor(&norm.shift, &shape)?;
        Ok(CandleNorm { scale, shift, eps: self.eps })
    }

    fn block(&self, block: parts::Block<'_>) -> Result<CandleBlock> {
        Ok(CandleBlock {
            norm1: self.norm(&block.norm1)?,
            query: self.linear(&block.query)?,
            key: self.linear(&block.key)?,
            value: self.linear(&block.value)?,
            output: self.linear(&block.output)?,
            scale1: self.tensor(&block.scale1, &[block.scale1.len()])?,
            norm2: self.norm(&block.norm2)?,
            mlp_input: self.linear(&block.mlp.input)?,
            mlp_output: self.linear(&block.mlp.output)?,
            swiglu: block.mlp.swiglu,
            scale2: self.tensor(&block.scale2, &[block.scale2.len()])?,
        })
    }
}

fn unusable(error: ModelError) -> EncodeError {
    EncodeError::Model(error.into())
}

/// Converts candle's error.
pub(crate) fn engine(error: candle_core::Error) -> EncodeError {
    EncodeError::Engine(error.into())
}
