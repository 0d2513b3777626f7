//! The forward, one candle operation per step.

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::ops::{layer_norm, sigmoid, silu, softmax_last_dim};
use foveate_core::{CHANNELS, PixelBatch, SampleType};
use foveate_encode::{EncodeError, Pooling};
use foveate_model::parts::{self, Parts};
use foveate_model::{Activation, Model, ModelError, Network, RotaryTable};

/// A model's weights on a device.
pub(crate) struct CandleNetwork {
    network: Network,
    device: Device,
    dtype: DType,
    patch: CandleLinear,
    /// The class token, the registers and all positions, `[tokens, hidden]`.
    base: Tensor,
    stem_norm: Option<CandleNorm>,
    rotary: Option<CandleRotary>,
    blocks: Vec<CandleBlock>,
    norm: CandleNorm,
    probe: Option<CandleProbe>,
    projection: Option<CandleLinear>,
}

/// Cosines and sines of every token's angles, `[tokens, head / 2]`.
struct CandleRotary {
    cos: Tensor,
    sin: Tensor,
}

struct CandleMlp {
    input: CandleLinear,
    output: CandleLinear,
    activation: Activation,
}

/// Attention pooling.
struct CandleProbe {
    /// `[1, heads, 1, head]`.
    query: Tensor,
    key: CandleLinear,
    value: CandleLinear,
    output: CandleLinear,
    norm: CandleNorm,
    mlp: CandleMlp,
    heads: usize,
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
    scale1: Option<Tensor>,
    norm2: CandleNorm,
    mlp: CandleMlp,
    scale2: Option<Tensor>,
}

impl CandleNetwork {
    /// Copies the weights of `model` to `device` in `dtype`.
    ///
    /// # Errors
    /// [`EncodeError::Model`] if a tensor is missing or the input is not a whole number of patches,
    /// [`EncodeError::Engine`] if candle refuses a tensor.
    pub(crate) fn new(
        model: &Model,
        device: Device,
        dtype: DType,
        pooling: Pooling,
    ) -> std::result::Result<Self, EncodeError> {
        let parts = Parts::new(model).map_err(unusable)?;
        let load = CandleLoader { device: &device, dtype, eps: model.network.layer_norm_eps as f32 };
        let embedding = parts.embedding().map_err(unusable)?;
        let norm = parts.final_norm().map_err(unusable)?;
        let head = parts.head(pooling).map_err(unusable)?;
        let rotary = parts.rotary().map(|table| table.behind(model.network.prefix_tokens()));
        let blocks = (0..model.network.num_hidden_layers)
            .map(|layer| load.block(parts.block(layer).map_err(unusable)?).map_err(engine))
            .collect::<std::result::Result<_, _>>()?;
        let base_shape = [parts.tokens(), model.network.hidden_size];
        Ok(Self {
            network: model.network.clone(),
            dtype,
            patch: load.linear(&embedding.patch).map_err(engine)?,
            base: load.tensor(&embedding.base, &base_shape).map_err(engine)?,
            stem_norm: embedding.norm.map(|norm| load.norm(&norm)).transpose().map_err(engine)?,
            rotary: rotary.map(|table| load.rotary(&table)).transpose().map_err(engine)?,
            blocks,
            norm: load.norm(&norm).map_err(engine)?,
            probe: head.probe.map(|probe| load.probe(&probe)).transpose().map_err(engine)?,
            projection: head.projection.map(|layer| load.linear(&layer)).transpose().map_err(engine)?,
            device,
        })
    }

    /// Copies the batch to the device and cuts it into patches, `[n, patches, patch * patch * 3]`.
    pub(crate) fn upload(&self, batch: PixelBatch<'_>) -> Result<Tensor> {
        let n = batch.len();
        let patch = self.network.patch_size;
        let rows = batch.size().height as usize / patch;
        let columns = batch.size().width as usize / patch;
        let shape = (n * rows, patch, columns, patch * CHANNELS);
        let pixels = match batch.format().sample {
            SampleType::U8 => Tensor::from_slice(batch.as_slice(), shape, &self.device)?,
            SampleType::F32 => {
                let mut samples = vec![0.0; n * rows * patch * columns * patch * CHANNELS];
                batch.widen(0, &mut samples);
                Tensor::from_vec(samples, shape, &self.device)?
            }
        };
        let pixels = pixels.to_dtype(self.dtype)?;
        let patches = pixels.transpose(1, 2)?.contiguous()?;
        patches.reshape((n, rows * columns, patch * patch * CHANNELS))
    }

    /// Returns the pooled vectors of uploaded patches, `[n, dim]` in f32.
    pub(crate) fn vectors(&self, patches: &Tensor, pooling: Pooling) -> Result<Tensor> {
        let x = self.last_hidden_state(patches)?;
        let vectors = match pooling {
            Pooling::Cls => token(&x, 0)?,
            Pooling::Mean => self.mean(&x)?,
            Pooling::ClsMean => Tensor::cat(&[token(&x, 0)?, self.mean(&x)?], 1)?,
            Pooling::Register => token(&x, usize::from(self.network.class_token))?,
            Pooling::Head => self.head(&x)?,
        };
        vectors.to_dtype(DType::F32)
    }

    fn mean(&self, x: &Tensor) -> Result<Tensor> {
        let prefix = self.network.prefix_tokens();
        x.narrow(1, prefix, x.dim(1)? - prefix)?.mean(1)
    }

    fn head(&self, x: &Tensor) -> Result<Tensor> {
        let pooled = match &self.probe {
            Some(probe) => probe.forward(x)?,
            None => x.narrow(1, 0, 1)?,
        };
        let pooled = match &self.projection {
            Some(projection) => projection.forward(&pooled)?,
            None => pooled,
        };
        pooled.squeeze(1)
    }

    /// Returns every image's tokens after the final LayerNorm, `[n, tokens, hidden]`.
    fn last_hidden_state(&self, patches: &Tensor) -> Result<Tensor> {
        let mut x = self.embed(patches)?;
        for block in &self.blocks {
            x = block.forward(&x, self.network.num_attention_heads, self.rotary.as_ref())?;
        }
        self.norm.forward(&x)
    }

    fn embed(&self, patches: &Tensor) -> Result<Tensor> {
        let tokens = self.patch.forward(patches)?.pad_with_zeros(1, self.network.prefix_tokens(), 0)?;
        let tokens = tokens.broadcast_add(&self.base)?;
        self.stem_norm.as_ref().map_or(Ok(tokens.clone()), |norm| norm.forward(&tokens))
    }

    /// Waits until the device has finished all enqueued work.
    pub(crate) fn wait(&self) -> Result<()> {
        self.device.synchronize()
    }
}

/// Token `at` of every image, `[n, hidden]`.
fn token(x: &Tensor, at: usize) -> Result<Tensor> {
    x.narrow(1, at, 1)?.squeeze(1)
}

fn scaled(x: Tensor, scale: Option<&Tensor>) -> Result<Tensor> {
    scale.map_or(Ok(x.clone()), |scale| x.broadcast_mul(scale))
}

/// `[n, tokens, hidden]` of queries, keys and values, `[n, heads, tokens, hidden / heads]`.
fn attention(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
    let (n, heads, tokens, width) = q.dims4()?;
    let scores = (q.matmul(&k.t()?)? / (width as f64).sqrt())?;
    let context = softmax_last_dim(&scores)?.matmul(v)?;
    context.transpose(1, 2)?.reshape((n, tokens, heads * width))
}

impl CandleBlock {
    fn forward(&self, x: &Tensor, heads: usize, rotary: Option<&CandleRotary>) -> Result<Tensor> {
        let attended = self.attention(&self.norm1.forward(x)?, heads, rotary)?;
        let x = (x + scaled(attended, self.scale1.as_ref())?)?;
        let fed = self.mlp.forward(&self.norm2.forward(&x)?)?;
        x + scaled(fed, self.scale2.as_ref())?
    }

    fn attention(&self, x: &Tensor, heads: usize, rotary: Option<&CandleRotary>) -> Result<Tensor> {
        let mut q = self.query.heads(x, heads)?;
        let mut k = self.key.heads(x, heads)?;
        let v = self.value.heads(x, heads)?;
        if let Some(rotary) = rotary {
            q = rotary.turn(&q)?;
            k = rotary.turn(&k)?;
        }
        self.output.forward(&attention(&q, &k, &v)?)
    }
}

impl CandleRotary {
    /// Turns `[n, heads, tokens, head]`.
    fn turn(&self, x: &Tensor) -> Result<Tensor> {
        let halves = x.chunk(2, D::Minus1)?;
        let a = &halves[0];
        let b = &halves[1];
        let low = (a.broadcast_mul(&self.cos)? - b.broadcast_mul(&self.sin)?)?;
        let high = (b.broadcast_mul(&self.cos)? + a.broadcast_mul(&self.sin)?)?;
        Tensor::cat(&[low, high], D::Minus1)?.contiguous()
    }
}

impl CandleProbe {
    /// Pools `[n, tokens, hidden]` to `[n, 1, hidden]`.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let k = self.key.heads(x, self.heads)?;
        let v = self.value.heads(x, self.heads)?;
        let q = self.query.repeat((x.dim(0)?, 1, 1, 1))?;
        let x = self.output.forward(&attention(&q, &k, &v)?)?;
        let fed = self.mlp.forward(&self.norm.forward(&x)?)?;
        x + fed
    }
}

impl CandleMlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.input.forward(x)?;
        let x = match self.activation {
            Activation::Gelu => x.gelu_erf()?,
            Activation::GeluTanh => x.gelu()?,
            Activation::QuickGelu => (sigmoid(&(&x * 1.702)?)? * x)?,
            Activation::Relu => x.relu()?,
            Activation::GatedSilu => {
                let halves = x.chunk(2, D::Minus1)?;
                (silu(&halves[0])? * &halves[1])?
            }
        };
        self.output.forward(&x)
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
            scale1: self.scale(block.scale1.as_deref())?,
            norm2: self.norm(&block.norm2)?,
            mlp: self.mlp(&block.mlp)?,
            scale2: self.scale(block.scale2.as_deref())?,
        })
    }

    fn scale(&self, scale: Option<&[f32]>) -> Result<Option<Tensor>> {
        scale.map(|scale| self.tensor(scale, &[scale.len()])).transpose()
    }

    fn mlp(&self, mlp: &parts::Mlp<'_>) -> Result<CandleMlp> {
        let input = self.linear(&mlp.input)?;
        Ok(CandleMlp { input, output: self.linear(&mlp.output)?, activation: mlp.activation })
    }

    fn rotary(&self, table: &RotaryTable) -> Result<CandleRotary> {
        let shape = [table.cos.len() / table.half, table.half];
        Ok(CandleRotary { cos: self.tensor(&table.cos, &shape)?, sin: self.tensor(&table.sin, &shape)? })
    }

    fn probe(&self, probe: &parts::ProbeLayers<'_>) -> Result<CandleProbe> {
        let width = probe.query.len() / probe.heads;
        Ok(CandleProbe {
            query: self.tensor(&probe.query, &[1, probe.heads, 1, width])?,
            key: self.linear(&probe.key)?,
            value: self.linear(&probe.value)?,
            output: self.linear(&probe.output)?,
            norm: self.norm(&probe.norm)?,
            mlp: self.mlp(&probe.mlp)?,
            heads: probe.heads,
        })
    }
}

pub(crate) fn unusable(error: ModelError) -> EncodeError {
    EncodeError::Model(error.into())
}

/// Converts candle's error.
pub(crate) fn engine(error: candle_core::Error) -> EncodeError {
    EncodeError::Engine(error.into())
}
