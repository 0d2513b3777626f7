//! DINOv2 in libtorch's fused operations.
//!
//! The weights include the pixels' normalization and LayerScale, folded in at load. Queries, keys and values are one
//! product. The last block skips the tokens that no pooled vector reads.

use foveate_core::{CHANNELS, PixelBatch};
use foveate_dinov2::Model;
use foveate_dinov2::parts::{self, Parts};
use foveate_encode::{EncodeError, Pooling};
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
    blocks: Vec<TchBlock>,
    norm: TchNorm,
}

#[derive(Clone, Copy)]
struct NetworkShape {
    hidden: i64,
    heads: i64,
    /// Side of a patch in pixels.
    patch: i64,
    /// Rows and columns of patches.
    grid: (i64, i64),
    /// Tokens before the patches.
    prefix: i64,
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
    mlp_input: TchLinear,
    mlp_output: TchLinear,
    swiglu: bool,
}

impl TchNetwork {
    /// Copies `model` to `device`, to compute in `kind`.
    pub(crate) fn new(model: &Model, device: Device, kind: Kind) -> std::result::Result<Self, EncodeError> {
        let parts = Parts::new(model).map_err(unusable)?;
        let config = &model.config;
        let grid = parts.grid();
        let load = TchLoader { device, kind, eps: config.layer_norm_eps };
        let blocks = (0..config.num_hidden_layers)
            .map(|layer| load.block(parts.block(layer).map_err(unusable)?).map_err(engine))
            .collect::<std::result::Result<_, _>>()?;
        let shape = NetworkShape {
            hidden: config.hidden_size as i64,
            heads: config.num_attention_heads as i64,
            patch: config.patch_size as i64,
            grid: (grid.height as i64, grid.width as i64),
            prefix: config.prefix_tokens() as i64,
        };
        let embedding = parts.embedding().map_err(unusable)?;
        let (prefix, positions) = embedding.base.split_at(config.prefix_tokens() * config.hidden_size);
        let exact = TchLoader { kind: Kind::Float, ..load };
        Ok(Self {
            shape,
            device,
            kind,
            patch: exact.linear(&embedding.patch).map_err(engine)?,
            prefix: exact.tensor(prefix, &[1, shape.prefix, shape.hidden]).map_err(engine)?,
            positions: exact.tensor(positions, &[shape.grid.0 * shape.grid.1, shape.hidden]).map_err(engine)?,
            blocks,
            norm: load.norm(&parts.final_norm().map_err(unusable)?).map_err(engine)?,
        })
    }

    /// Computes the vectors of a batch on the device, `[n, dim]`.
    pub(crate) fn vectors(&self, pixels: &Tensor, pooling: Pooling) -> Result<Tensor> {
        let mut x = self.embed(pixels)?.f_to_kind(self.kind)?;
        let Some((last, blocks)) = self.blocks.split_last() else {
            return self.pool(pooling, |first, n| x.f_narrow(1, first, n));
        };
        for block in blocks {
            x = block.forward(&x, self.shape)?;
        }
        let attention = last.attention(&x, self.shape)?;
        self.pool(pooling, |first, n| last.finish(&x, &attention, first, n, self.shape))
    }

    /// Copies the batch to the device, as u8 in rows of patches: `[n * rows, patch, columns, patch * 3]`.
    pub(crate) fn upload(&self, batch: PixelBatch<'_>, staging: &mut PinnedStaging) -> Result<Tensor> {
        let NetworkShape { patch, grid: (rows, columns), .. } = self.shape;
        let shape = [batch.len() as i64 * rows, patch, columns, CHANNELS as i64 * patch];
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
        if pooling == Pooling::Mean {
            return self.mean(&tokens);
        }
        let class = self.norm.forward(&tokens(0, 1)?)?.f_reshape([-1, self.shape.hidden])?;
        if pooling == Pooling::Cls {
            return Ok(class);
        }
        Tensor::f_cat(&[class.f_to_kind(Kind::Float)?, self.mean(&tokens)?], 1)
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
            blocks: self.blocks.clone(),
            norm: self.norm.clone(),
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
            mlp_input: self.mlp_input.clone(),
            mlp_output: self.mlp_output.clone(),
            swiglu: self.swiglu,
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
    fn forward(&self, x: &Tensor, shape: NetworkShape) -> Result<Tensor> {
        let attention = self.attention(x, shape)?;
        self.finish(x, &attention, 0, x.size()[1], shape)
    }

    fn attention(&self, x: &Tensor, shape: NetworkShape) -> Result<AttentionInputs> {
        let NetworkShape { hidden, heads, .. } = shape;
        let qkv = self.qkv.forward(&self.norm1.forward(x)?)?;
        let n = x.size()[0];
        let tokens = x.size()[1];
        let qkv = qkv.f_view([n, tokens, 3, heads, hidden / heads])?;
        Ok(AttentionInputs {
            query: qkv.f_select(2, 0)?.f_transpose(1, 2)?,
            key: qkv.f_select(2, 1)?.f_transpose(1, 2)?,
            value: qkv.f_select(2, 2)?.f_transpose(1, 2)?,
        })
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
        self.mlp(&self.norm2.forward(&x)?)?.f_add_(&x)
    }

    fn mlp(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = self.mlp_input.forward(x)?;
        let x = if self.swiglu {
            let halves = x.f_chunk(2, -1)?;
            halves[0].f_silu()?.f_mul_(&halves[1])?
        } else {
            x.f_gelu_("none")?
        };
        self.mlp_output.forward(&x)
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
            output: self.linear(&block.output.scaled(&block.scale1))?,
            norm2: self.norm(&block.norm2)?,
            mlp_input: self.linear(&block.mlp.input)?,
            mlp_output: self.linear(&block.mlp.output.scaled(&block.scale2))?,
            swiglu: block.mlp.swiglu,
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

fn unusable(error: foveate_dinov2::ModelError) -> EncodeError {
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
