//! The same model in plain tensor operations of candle: the readable statement of the forward.
//!
//! It runs on any device and in any precision that candle has; the CPU forward of this crate ([`crate::FusedEncoder`])
//! is a fused form of it, about twice as fast there, and both are held against the same goldens.

use std::time::Instant;

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::ops::{layer_norm, silu, softmax_last_dim};
use foveate_core::{CHANNELS, PixelBatch, VectorBuf};
use foveate_dinov2::parts::{self, Parts};
use foveate_dinov2::{Config, Model};
use foveate_encode::{EncodeError, EncodeTimes, Encoder, EncoderOptions, EncoderSpec, Overlap, Pooling, Resident};

use crate::encoder::unusable;

/// DINOv2 in candle's own tensor operations, with candle's own threads (`options.threads` is not used).
pub struct TensorEncoder {
    spec: EncoderSpec,
    config: Config,
    device: Device,
    dtype: DType,
    patch: Linear,
    base: Tensor,
    blocks: Vec<Block>,
    norm: Norm,
}

struct Linear {
    /// `[outputs, inputs]`.
    weight: Tensor,
    bias: Tensor,
}

struct Norm {
    scale: Tensor,
    shift: Tensor,
    eps: f32,
}

struct Block {
    norm1: Norm,
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    scale1: Tensor,
    norm2: Norm,
    mlp_input: Linear,
    mlp_output: Linear,
    swiglu: bool,
    scale2: Tensor,
}

impl TensorEncoder {
    /// Loads `model` onto `device` in the precision that `options` asks for.
    ///
    /// # Errors
    /// [`EncodeError::Model`] for a model whose tensors are not all there or whose input is not a whole number of
    /// patches, [`EncodeError::Engine`] when the device refuses them.
    pub fn new(model: &Model, options: &EncoderOptions, device: Device) -> std::result::Result<Self, EncodeError> {
        let layers = Parts::new(model).map_err(unusable)?;
        let dtype = match options.dtype {
            foveate_encode::DType::F32 => DType::F32,
            foveate_encode::DType::F16 => DType::F16,
            foveate_encode::DType::Bf16 => DType::BF16,
            other => return Err(EncodeError::Unsupported(format!("{} in candle", other.name()))),
        };
        let load = Load { device: &device, dtype, eps: model.config.layer_norm_eps as f32 };
        let (embedding, norm) = (layers.embedding().map_err(unusable)?, layers.final_norm().map_err(unusable)?);
        let blocks = (0..model.config.num_hidden_layers)
            .map(|layer| load.block(layers.block(layer).map_err(unusable)?).map_err(engine))
            .collect::<std::result::Result<_, _>>()?;
        let base_shape = [layers.tokens(), model.config.hidden_size];
        Ok(Self {
            spec: EncoderSpec { batch_invariant: false, ..crate::encoder::spec(model, options) },
            config: model.config.clone(),
            dtype,
            patch: load.linear(&embedding.patch).map_err(engine)?,
            base: load.tensor(&embedding.base, &base_shape).map_err(engine)?,
            blocks,
            norm: load.norm(&norm).map_err(engine)?,
            device,
        })
    }

    /// The tokens of every image after the final LayerNorm, `[n, tokens, hidden]`.
    fn last_hidden_state(&self, batch: PixelBatch<'_>) -> Result<Tensor> {
        let mut x = self.embed(batch)?;
        for block in &self.blocks {
            x = block.forward(&x, self.config.num_attention_heads)?;
        }
        self.norm.forward(&x)
    }

    fn embed(&self, batch: PixelBatch<'_>) -> Result<Tensor> {
        let (n, patch) = (batch.len(), self.config.patch_size);
        let (rows, columns) = (batch.size().height as usize / patch, batch.size().width as usize / patch);
        let pixels = Tensor::from_slice(batch.as_slice(), (n * rows, patch, columns, patch * CHANNELS), &self.device)?;
        let patches = pixels.to_dtype(self.dtype)?.transpose(1, 2)?.contiguous()?;
        let patches = patches.reshape((n, rows * columns, patch * patch * CHANNELS))?;
        let prefix = self.config.prefix_tokens();
        let tokens = self.patch.forward(&patches)?.pad_with_zeros(1, prefix, 0)?;
        tokens.broadcast_add(&self.base)
    }

    fn pooled(&self, batch: PixelBatch<'_>) -> Result<Vec<f32>> {
        let x = self.last_hidden_state(batch)?;
        let prefix = self.config.prefix_tokens();
        let class = || x.narrow(1, 0, 1)?.squeeze(1);
        let mean = || x.narrow(1, prefix, x.dim(1)? - prefix)?.mean(1);
        let vectors = match self.spec.pooling {
            Pooling::Cls => class()?,
            Pooling::Mean => mean()?,
            Pooling::ClsMean => Tensor::cat(&[class()?, mean()?], 1)?,
        };
        vectors.to_dtype(DType::F32)?.flatten_all()?.to_vec1()
    }
}

impl Encoder for TensorEncoder {
    fn spec(&self) -> &EncoderSpec {
        &self.spec
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> std::result::Result<EncodeTimes, EncodeError> {
        let started = Instant::now();
        self.spec.check(batch)?;
        let vectors = self.pooled(batch).map_err(engine)?;
        out.reset(batch.len(), self.spec.dim).copy_from_slice(&vectors);
        Ok(EncodeTimes::forward_since(started))
    }

    fn resident(&mut self) -> Option<&mut dyn Resident> {
        None
    }

    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        None
    }
}

impl Block {
    fn forward(&self, x: &Tensor, heads: usize) -> Result<Tensor> {
        let attended = self.attention(&self.norm1.forward(x)?, heads)?.broadcast_mul(&self.scale1)?;
        let x = (x + attended)?;
        let fed = self.mlp(&self.norm2.forward(&x)?)?.broadcast_mul(&self.scale2)?;
        x + fed
    }

    fn attention(&self, x: &Tensor, heads: usize) -> Result<Tensor> {
        let (n, tokens, hidden) = x.dims3()?;
        let split = |layer: &Linear| {
            layer.forward(x)?.reshape((n, tokens, heads, hidden / heads))?.transpose(1, 2)?.contiguous()
        };
        let (q, k, v) = (split(&self.query)?, split(&self.key)?, split(&self.value)?);
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

impl Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (n, tokens, inputs) = x.dims3()?;
        let y = x.reshape((n * tokens, inputs))?.matmul(&self.weight.t()?)?.broadcast_add(&self.bias)?;
        y.reshape((n, tokens, ()))
    }
}

impl Norm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        layer_norm(x, &self.scale, &self.shift, self.eps)
    }
}

/// Puts a model's parts on a device.
struct Load<'a> {
    device: &'a Device,
    dtype: DType,
    eps: f32,
}

impl Load<'_> {
    fn tensor(&self, values: &[f32], shape: &[usize]) -> Result<Tensor> {
        Tensor::from_slice(values, shape, self.device)?.to_dtype(self.dtype)
    }

    fn linear(&self, layer: &parts::Linear<'_>) -> Result<Linear> {
        let outputs = layer.bias.len();
        Ok(Linear {
            weight: self.tensor(&layer.weight, &[outputs, layer.inputs])?,
            bias: self.tensor(&layer.bias, &[outputs])?,
        })
    }

    fn norm(&self, norm: &parts::Norm<'_>) -> Result<Norm> {
        let shape = [norm.scale.len()];
        let (scale, shift) = (self.tensor(&norm.scale, &shape)?, self.tensor(&norm.shift, &shape)?);
        Ok(Norm { scale, shift, eps: self.eps })
    }

    fn block(&self, block: parts::Block<'_>) -> Result<Block> {
        let factors = |values: &[f32]| self.tensor(values, &[values.len()]);
        Ok(Block {
            norm1: self.norm(&block.norm1)?,
            query: self.linear(&block.query)?,
            key: self.linear(&block.key)?,
            value: self.linear(&block.value)?,
            output: self.linear(&block.output)?,
            scale1: factors(&block.scale1)?,
            norm2: self.norm(&block.norm2)?,
            mlp_input: self.linear(&block.mlp.input)?,
            mlp_output: self.linear(&block.mlp.output)?,
            swiglu: block.mlp.swiglu,
            scale2: factors(&block.scale2)?,
        })
    }
}

fn engine(error: candle_core::Error) -> EncodeError {
    EncodeError::Engine(error.to_string())
}
