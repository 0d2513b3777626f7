//! A vision transformer in libtorch's fused operations.
//!
//! The weights include the pixels' normalization and LayerScale, folded in at load. Queries, keys and values are one
//! product. The last block skips the tokens that no pooled vector reads.

use foveate_core::{CHANNELS, PixelBatch, SampleType};
use foveate_encode::{EncodeError, Pooling};
use foveate_model::parts::{self, Parts};
use foveate_model::{Activation, Model, RotaryTable};
use tch::{Device, Kind, TchError, Tensor};

use crate::cuda::PinnedStaging;

type Result<T> = std::result::Result<T, TchError>;

/// A model's weights on a device. Clones share them.
pub(crate) struct TchNetwork {
    shape: NetworkShape,
    device: Device,
    kind: Kind,
    /// Applied in f32, because raw samples are large compared with the offset that normalization folds into the bias.
    patch: TchLinear,
    /// Class token and registers, `[1, prefix, hidden]`.
    prefix: Tensor,
    /// `[patches, hidden]`.
    positions: Tensor,
    stem_norm: Option<TchNorm>,
    rotary: Option<TchRotary>,
    blocks: Vec<TchBlock>,
    norm: TchNorm,
    probe: Option<TchProbe>,
    projection: Option<TchLinear>,
}

#[derive(Clone, Copy)]
struct NetworkShape {
    hidden: i64,
    heads: i64,
    /// Side of a patch in pixels.
    patch: i64,
    /// Rows and columns of patches.
    grid: (i64, i64),
    /// Tokens before the patches, and those of them before the registers.
    prefix: i64,
    class: i64,
}

struct TchLinear {
    /// `[outputs, inputs]`.
    weight: Tensor,
    bias: Tensor,
}

struct TchNorm {
    scale: Tensor,
    shift: Tensor,
    eps: f64,
}

struct TchBlock {
    norm1: TchNorm,
    /// Outputs are queries, keys, values.
    qkv: TchLinear,
    output: TchLinear,
    norm2: TchNorm,
    mlp: TchMlp,
}

struct TchMlp {
    input: TchLinear,
    output: TchLinear,
    activation: Activation,
}

/// Cosines and sines of every token's angles, `[tokens, head / 2]`.
struct TchRotary {
    cos: Tensor,
    sin: Tensor,
}

/// Attention pooling.
struct TchProbe {
    /// `[1, heads, 1, head]`.
    query: Tensor,
    /// Outputs are keys, values.
    key_value: TchLinear,
    output: TchLinear,
    norm: TchNorm,
    mlp: TchMlp,
}

impl TchNetwork {
    /// Copies `model` to `device`, to compute in `kind`.
    pub(crate) fn new(
        model: &Model,
        device: Device,
        kind: Kind,
        pooling: Pooling,
    ) -> std::result::Result<Self, EncodeError> {
        let parts = Parts::new(model).map_err(unusable)?;
        let network = &model.network;
        let grid = parts.grid();
        let load = TchLoader { device, kind, eps: network.layer_norm_eps };
        let blocks = (0..network.num_hidden_layers)
            .map(|layer| load.block(parts.block(layer).map_err(unusable)?).map_err(engine))
            .collect::<std::result::Result<_, _>>()?;
        let shape = NetworkShape {
            hidden: network.hidden_size as i64,
            heads: network.num_attention_heads as i64,
            patch: network.patch_size as i64,
            grid: (grid.height as i64, grid.width as i64),
            prefix: network.prefix_tokens() as i64,
            class: i64::from(network.class_token),
        };
        let embedding = parts.embedding().map_err(unusable)?;
        let (prefix, positions) = embedding.base.split_at(network.prefix_tokens() * network.hidden_size);
        let exact = TchLoader { kind: Kind::Float, ..load };
        let head = parts.head(pooling).map_err(unusable)?;
        let rotary = parts.rotary().map(|table| table.behind(network.prefix_tokens()));
        Ok(Self {
            shape,
            device,
            kind,
            patch: exact.linear(&embedding.patch).map_err(engine)?,
            prefix: exact.tensor(prefix, &[1, shape.prefix, shape.hidden]).map_err(engine)?,
            positions: exact.tensor(positions, &[shape.grid.0 * shape.grid.1, shape.hidden]).map_err(engine)?,
            stem_norm: embedding.norm.map(|norm| load.norm(&norm)).transpose().map_err(engine)?,
            rotary: rotary.map(|table| load.rotary(&table)).transpose().map_err(engine)?,
            blocks,
            norm: load.norm(&parts.final_norm().map_err(unusable)?).map_err(engine)?,
            probe: head.probe.map(|probe| load.probe(probe)).transpose().map_err(engine)?,
            projection: head.projection.map(|layer| load.linear(&layer)).transpose().map_err(engine)?,
        })
    }

    /// Computes the vectors of a batch on the device, `[n, dim]`.
    pub(crate) fn vectors(&self, pixels: &Tensor, pooling: Pooling) -> Result<Tensor> {
        let mut x = self.embed(pixels)?.f_to_kind(self.kind)?;
        if let Some(norm) = &self.stem_norm {
            x = norm.forward(&x)?;
        }
        let Some((last, blocks)) = self.blocks.split_last() else {
            return self.pool(pooling, |first, n| x.f_narrow(1, first, n));
        };
        for block in blocks {
            x = block.forward(&x, self.shape, self.rotary.as_ref())?;
        }
        let attention = last.attention(&x, self.shape, self.rotary.as_ref())?;
        self.pool(pooling, |first, n| last.finish(&x, &attention, first, n, self.shape))
    }

    /// Copies the batch to the device, in rows of patches: `[n * rows, patch, columns, patch * 3]`.
    pub(crate) fn upload(&self, batch: PixelBatch<'_>, staging: &mut PinnedStaging) -> Result<Tensor> {
        let NetworkShape { patch, grid: (rows, columns), .. } = self.shape;
        let shape = [batch.len() as i64 * rows, patch, columns, CHANNELS as i64 * patch];
        if batch.format().sample == SampleType::F32 {
            let mut samples = vec![0.0f32; shape.iter().product::<i64>() as usize];
            batch.widen(0, &mut samples);
            return Tensor::f_from_slice(&samples)?.f_view(shape)?.f_to(self.device);
        }
        match self.device {
            Device::Cpu => Tensor::f_from_data_size(batch.as_slice(), &shape, Kind::Uint8),
            device => staging.upload(batch.as_slice(), &shape, device),
        }
    }

    /// The number of images of an uploaded batch.
    pub(crate) fn images(&self, pixels: &Tensor) -> usize {
        (pixels.size()[0] / self.shape.grid.0) as usize
    }

    /// Computes the tokens of every image, `[n, tokens, hidden]`, in f32.
    fn embed(&self, pixels: &Tensor) -> Result<Tensor> {
        let NetworkShape { hidden, patch, grid: (rows, columns), prefix, .. } = self.shape;
        let n = pixels.size()[0] / rows;
        let samples = CHANNELS as i64 * patch;
        let patches = pixels.f_transpose(1, 2)?.f_contiguous()?.f_to_kind(Kind::Float)?;
        let patches = patches.f_view([n, rows * columns, patch * samples])?;
        let patches = self.patch.forward(&patches)?.f_add_(&self.positions)?;
        Tensor::f_cat(&[self.prefix.f_expand([n, prefix, hidden], false)?, patches], 1)
    }

    /// Pools tokens. `tokens(first, n)` returns `n` tokens from the `first` on, before the final LayerNorm.
    fn pool(&self, pooling: Pooling, tokens: impl Fn(i64, i64) -> Result<Tensor>) -> Result<Tensor> {
        match pooling {
            Pooling::Cls => self.token(&tokens, 0),
            Pooling::Mean => self.mean(&tokens),
            Pooling::ClsMean => {
                let class = self.token(&tokens, 0)?;
                Tensor::f_cat(&[class.f_to_kind(Kind::Float)?, self.mean(&tokens)?], 1)
            }
            Pooling::Register => self.token(&tokens, self.shape.class),
            Pooling::Head => self.head(&tokens),
        }
    }

    /// One token of every image, `[n, hidden]`.
    fn token(&self, tokens: &impl Fn(i64, i64) -> Result<Tensor>, at: i64) -> Result<Tensor> {
        self.norm.forward(&tokens(at, 1)?)?.f_reshape([-1, self.shape.hidden])
    }

    fn head(&self, tokens: &impl Fn(i64, i64) -> Result<Tensor>) -> Result<Tensor> {
        let NetworkShape { grid: (rows, columns), prefix, hidden, .. } = self.shape;
        let pooled = match &self.probe {
            Some(probe) => {
                let all = self.norm.forward(&tokens(0, prefix + rows * columns)?)?;
                probe.forward(&all)?.f_reshape([-1, hidden])?
            }
            None => self.token(tokens, 0)?,
        };
        self.projection.as_ref().map_or(Ok(pooled.shallow_clone()), |projection| projection.forward(&pooled))
    }

    /// The mean of the patches' tokens, in f32.
    fn mean(&self, tokens: &impl Fn(i64, i64) -> Result<Tensor>) -> Result<Tensor> {
        let NetworkShape { grid: (rows, columns), prefix, .. } = self.shape;
        self.norm.forward(&tokens(prefix, rows * columns)?)?.f_mean_dim(1, false, Kind::Float)
    }
}

/// Shares the weights.
impl Clone for TchNetwork {
    fn clone(&self) -> Self {
        Self {
            patch: self.patch.clone(),
            prefix: self.prefix.shallow_clone(),
            positions: self.positions.shallow_clone(),
            stem_norm: self.stem_norm.clone(),
            rotary: self.rotary.clone(),
            blocks: self.blocks.clone(),
            norm: self.norm.clone(),
            probe: self.probe.clone(),
            projection: self.projection.clone(),
            ..*self
        }
    }
}

impl Clone for TchLinear {
    fn clone(&self) -> Self {
        Self { weight: self.weight.shallow_clone(), bias: self.bias.shallow_clone() }
    }
}

impl Clone for TchNorm {
    fn clone(&self) -> Self {
        Self { scale: self.scale.shallow_clone(), shift: self.shift.shallow_clone(), eps: self.eps }
    }
}

impl Clone for TchBlock {
    fn clone(&self) -> Self {
        Self {
            norm1: self.norm1.clone(),
            qkv: self.qkv.clone(),
            output: self.output.clone(),
            norm2: self.norm2.clone(),
            mlp: self.mlp.clone(),
        }
    }
}

impl Clone for TchMlp {
    fn clone(&self) -> Self {
        Self { input: self.input.clone(), output: self.output.clone(), activation: self.activation }
    }
}

impl Clone for TchRotary {
    fn clone(&self) -> Self {
        Self { cos: self.cos.shallow_clone(), sin: self.sin.shallow_clone() }
    }
}

impl Clone for TchProbe {
    fn clone(&self) -> Self {
        Self {
            query: self.query.shallow_clone(),
            key_value: self.key_value.clone(),
            output: self.output.clone(),
            norm: self.norm.clone(),
            mlp: self.mlp.clone(),
        }
    }
}

/// The inputs of a block's attention: the keys and values of all tokens, and the queries.
struct AttentionInputs {
    /// Each `[n, heads, tokens, head]`.
    query: Tensor,
    key: Tensor,
    value: Tensor,
}

impl TchBlock {
    fn forward(&self, x: &Tensor, shape: NetworkShape, rotary: Option<&TchRotary>) -> Result<Tensor> {
        let attention = self.attention(x, shape, rotary)?;
        self.finish(x, &attention, 0, x.size()[1], shape)
    }

    fn attention(&self, x: &Tensor, shape: NetworkShape, rotary: Option<&TchRotary>) -> Result<AttentionInputs> {
        let NetworkShape { hidden, heads, .. } = shape;
        let qkv = self.qkv.forward(&self.norm1.forward(x)?)?;
        let n = x.size()[0];
        let tokens = x.size()[1];
        let qkv = qkv.f_view([n, tokens, 3, heads, hidden / heads])?;
        let mut query = qkv.f_select(2, 0)?.f_transpose(1, 2)?;
        let mut key = qkv.f_select(2, 1)?.f_transpose(1, 2)?;
        if let Some(rotary) = rotary {
            query = rotary.turn(&query)?;
            key = rotary.turn(&key)?;
        }
        Ok(AttentionInputs { query, key, value: qkv.f_select(2, 2)?.f_transpose(1, 2)? })
    }

    /// Computes the block's output for `n` tokens from the `first` on.
    fn finish(
        &self,
        x: &Tensor,
        attention: &AttentionInputs,
        first: i64,
        n: i64,
        shape: NetworkShape,
    ) -> Result<Tensor> {
        let AttentionInputs { query, key, value } = attention;
        let query = query.f_narrow(2, first, n)?;
        let context =
            Tensor::f_scaled_dot_product_attention(&query, key, value, None::<Tensor>, 0.0, false, None, false)?;
        let context = context.f_transpose(1, 2)?.f_reshape([-1, n, shape.hidden])?;
        let x = self.output.forward(&context)?.f_add_(&x.f_narrow(1, first, n)?)?;
        self.mlp.forward(&self.norm2.forward(&x)?)?.f_add_(&x)
    }
}

impl TchMlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = self.input.forward(x)?;
        let x = match self.activation {
            Activation::Gelu => x.f_gelu_("none")?,
            Activation::GeluTanh => x.f_gelu_("tanh")?,
            Activation::QuickGelu => x.f_mul_scalar(1.702)?.f_sigmoid_()?.f_mul_(&x)?,
            Activation::Relu => x.f_relu_()?,
            Activation::GatedSilu => {
                let halves = x.f_chunk(2, -1)?;
                halves[0].f_silu()?.f_mul_(&halves[1])?
            }
        };
        self.output.forward(&x)
    }
}

impl TchRotary {
    /// Turns `[n, heads, tokens, head]`.
    fn turn(&self, x: &Tensor) -> Result<Tensor> {
        let halves = x.f_chunk(2, -1)?;
        let a = &halves[0];
        let b = &halves[1];
        let low = a.f_mul(&self.cos)?.f_sub(&b.f_mul(&self.sin)?)?;
        let high = b.f_mul(&self.cos)?.f_add(&a.f_mul(&self.sin)?)?;
        Tensor::f_cat(&[low, high], -1)
    }
}

impl TchProbe {
    /// Pools `[n, tokens, hidden]` to `[n, 1, hidden]`.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let size = self.query.size();
        let heads = size[1];
        let head = size[3];
        let n = x.size()[0];
        let key_value = self.key_value.forward(x)?.f_view([n, x.size()[1], 2, heads, head])?;
        let query = self.query.f_expand([n, heads, 1, head], false)?;
        let key = key_value.f_select(2, 0)?.f_transpose(1, 2)?;
        let value = key_value.f_select(2, 1)?.f_transpose(1, 2)?;
        let context =
            Tensor::f_scaled_dot_product_attention(&query, &key, &value, None::<Tensor>, 0.0, false, None, false)?;
        let x = self.output.forward(&context.f_transpose(1, 2)?.f_reshape([n, 1, heads * head])?)?;
        self.mlp.forward(&self.norm.forward(&x)?)?.f_add_(&x)
    }
}

impl TchLinear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.f_linear(&self.weight, Some(&self.bias))
    }
}

impl TchNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let size = self.scale.size();
        x.f_layer_norm(size, Some(&self.scale), Some(&self.shift), self.eps, true)
    }
}

/// Copies a model's parts to a device.
#[derive(Clone, Copy)]
struct TchLoader {
    device: Device,
    kind: Kind,
    eps: f64,
}

impl TchLoader {
    fn tensor(&self, values: &[f32], shape: &[i64]) -> Result<Tensor> {
        Tensor::f_from_slice(values)?.f_reshape(shape)?.f_to_kind(self.kind)?.f_to(self.device)
    }

    fn linear(&self, layer: &parts::Linear<'_>) -> Result<TchLinear> {
        let outputs = layer.bias.len() as i64;
        Ok(TchLinear {
            weight: self.tensor(&layer.weight, &[outputs, layer.inputs as i64])?,
            bias: self.tensor(&layer.bias, &[outputs])?,
        })
    }

    fn norm(&self, norm: &parts::Norm<'_>) -> Result<TchNorm> {
        let shape = [norm.scale.len() as i64];
        Ok(TchNorm {
            scale: self.tensor(&norm.scale, &shape)?,
            shift: self.tensor(&norm.shift, &shape)?,
            eps: self.eps,
        })
    }

    fn block(&self, block: parts::Block<'_>) -> Result<TchBlock> {
        Ok(TchBlock {
            norm1: self.norm(&block.norm1)?,
            qkv: self.linear(&side_by_side(block.query, &[block.key, block.value]))?,
            output: self.linear(&block.output.scaled_by(block.scale1.as_deref()))?,
            norm2: self.norm(&block.norm2)?,
            mlp: self.mlp(block.mlp, block.scale2.as_deref())?,
        })
    }

    fn mlp(&self, mlp: parts::Mlp<'_>, scale: Option<&[f32]>) -> Result<TchMlp> {
        let input = self.linear(&mlp.input)?;
        Ok(TchMlp { input, output: self.linear(&mlp.output.scaled_by(scale))?, activation: mlp.activation })
    }

    fn rotary(&self, table: &RotaryTable) -> Result<TchRotary> {
        let shape = [(table.cos.len() / table.half) as i64, table.half as i64];
        Ok(TchRotary { cos: self.tensor(&table.cos, &shape)?, sin: self.tensor(&table.sin, &shape)? })
    }

    fn probe(&self, probe: parts::ProbeLayers<'_>) -> Result<TchProbe> {
        let width = probe.query.len() / probe.heads;
        Ok(TchProbe {
            query: self.tensor(&probe.query, &[1, probe.heads as i64, 1, width as i64])?,
            key_value: self.linear(&side_by_side(probe.key, &[probe.value]))?,
            output: self.linear(&probe.output)?,
            norm: self.norm(&probe.norm)?,
            mlp: self.mlp(probe.mlp, None)?,
        })
    }
}

/// Returns one layer whose outputs are those of all layers, concatenated.
fn side_by_side<'a>(mut first: parts::Linear<'a>, others: &[parts::Linear<'_>]) -> parts::Linear<'a> {
    for other in others {
        first.weight.to_mut().extend_from_slice(&other.weight);
        first.bias.to_mut().extend_from_slice(&other.bias);
    }
    first
}

fn unusable(error: foveate_model::ModelError) -> EncodeError {
    EncodeError::Model(error.into())
}

/// Converts libtorch's error, without the C++ stack that follows its first line.
pub(crate) fn engine(error: TchError) -> EncodeError {
    EncodeError::Engine(first_line(&error).into())
}

/// libtorch's message, in one line.
pub(crate) fn first_line(error: &TchError) -> String {
    let text = match error {
        TchError::Torch(text) => text.clone(),
        other => other.to_string(),
    };
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}
