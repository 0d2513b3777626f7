//! What a DINOv2 model is made of: the one place that knows its tensors' names and shapes. Both forwards, the fused one
//! and the one of plain tensor operations, are built from these parts.

use std::borrow::Cow;

use foveate_core::CHANNELS;
use foveate_dinov2::{Grid, Model, fold_normalization, interpolate_positions};
use foveate_encode::EncodeError;

/// `y = x · weightᵀ + bias`, `weight` `[outputs, inputs]` row-major.
pub(crate) struct Linear<'a> {
    pub(crate) weight: Cow<'a, [f32]>,
    pub(crate) bias: Cow<'a, [f32]>,
    pub(crate) inputs: usize,
}

/// A LayerNorm's factors and offsets.
pub(crate) struct Norm<'a> {
    pub(crate) scale: Cow<'a, [f32]>,
    pub(crate) shift: Cow<'a, [f32]>,
}

/// One transformer block: `x += scale1 · output(attention(norm1(x)))`, then `x += scale2 · mlp(norm2(x))`.
pub(crate) struct Block<'a> {
    pub(crate) norm1: Norm<'a>,
    pub(crate) query: Linear<'a>,
    pub(crate) key: Linear<'a>,
    pub(crate) value: Linear<'a>,
    pub(crate) output: Linear<'a>,
    pub(crate) scale1: Cow<'a, [f32]>,
    pub(crate) norm2: Norm<'a>,
    pub(crate) mlp: Mlp<'a>,
    pub(crate) scale2: Cow<'a, [f32]>,
}

/// The feed-forward half of a block.
pub(crate) struct Mlp<'a> {
    /// `fc1`; or with SwiGLU `weights_in`, whose first half of outputs is the gate of the second.
    pub(crate) input: Linear<'a>,
    /// `fc2` or `weights_out`.
    pub(crate) output: Linear<'a>,
    /// `silu(gate) · up` instead of `gelu`.
    pub(crate) swiglu: bool,
}

/// How an image becomes tokens: `tokens = base`, and the patch embeddings are added to the rows behind the prefix.
pub(crate) struct Embedding<'a> {
    /// Takes a patch of raw u8 samples, `[patch, patch, 3]`: normalization is folded in.
    pub(crate) patch: Linear<'a>,
    /// `[tokens, hidden]`: the class token with its position, the registers, and the patches' positions.
    pub(crate) base: Vec<f32>,
}

/// Reads a model's parts, each when it is asked for.
pub(crate) struct Architecture<'a> {
    model: &'a Model,
    pub(crate) grid: Grid,
}

impl<'a> Architecture<'a> {
    /// The model at the input size that its preprocessing recipe gives.
    pub(crate) fn new(model: &'a Model) -> Result<Self, EncodeError> {
        let grid = model.config.grid(model.preprocess.crop).map_err(|e| EncodeError::Model(e.to_string()))?;
        Ok(Self { model, grid })
    }

    /// Tokens of an image.
    pub(crate) fn tokens(&self) -> usize {
        self.model.config.tokens(self.grid)
    }

    pub(crate) fn embedding(&self) -> Result<Embedding<'a>, EncodeError> {
        let (config, recipe) = (&self.model.config, &self.model.preprocess);
        let (hidden, patch) = (config.hidden_size, config.patch_size);
        let projection = "embeddings.patch_embeddings.projection";
        let weight = self.tensor(&format!("{projection}.weight"), &[hidden, CHANNELS, patch, patch])?;
        let bias = self.tensor(&format!("{projection}.bias"), &[hidden])?;
        let (weight, bias) = fold_normalization(&weight, &bias, recipe.mean, recipe.std, recipe.rescale_factor);
        let weight = channels_last(&weight, patch * patch);
        let inputs = patch * patch * CHANNELS;
        let patch = Linear { weight: weight.into(), bias: bias.into(), inputs };
        Ok(Embedding { patch, base: self.base_tokens()? })
    }

    fn base_tokens(&self) -> Result<Vec<f32>, EncodeError> {
        let config = &self.model.config;
        let (hidden, registers) = (config.hidden_size, config.num_register_tokens);
        let stored = 1 + config.stored_grid().patches();
        let positions = self.tensor("embeddings.position_embeddings", &[1, stored, hidden])?;
        let positions = interpolate_positions(config, &positions, self.grid.height, self.grid.width);
        let class = self.tensor("embeddings.cls_token", &[1, 1, hidden])?;
        let mut base: Vec<f32> = class.iter().zip(&positions).map(|(&token, &position)| token + position).collect();
        if registers > 0 {
            base.extend_from_slice(&self.tensor("embeddings.register_tokens", &[1, registers, hidden])?);
        }
        base.extend_from_slice(&positions[hidden..]);
        Ok(base)
    }

    pub(crate) fn block(&self, layer: usize) -> Result<Block<'a>, EncodeError> {
        let config = &self.model.config;
        let hidden = config.hidden_size;
        let layer = format!("encoder.layer.{layer}");
        let attention =
            |part: &str| self.linear(&format!("{layer}.attention.attention.{part}"), hidden, hidden, config.qkv_bias);
        Ok(Block {
            norm1: self.norm(&format!("{layer}.norm1"))?,
            query: attention("query")?,
            key: attention("key")?,
            value: attention("value")?,
            output: self.linear(&format!("{layer}.attention.output.dense"), hidden, hidden, true)?,
            scale1: self.tensor(&format!("{layer}.layer_scale1.lambda1"), &[hidden])?,
            norm2: self.norm(&format!("{layer}.norm2"))?,
            mlp: self.mlp(&format!("{layer}.mlp"))?,
            scale2: self.tensor(&format!("{layer}.layer_scale2.lambda1"), &[hidden])?,
        })
    }

    fn mlp(&self, name: &str) -> Result<Mlp<'a>, EncodeError> {
        let config = &self.model.config;
        let (hidden, mlp, swiglu) = (config.hidden_size, config.mlp_hidden, config.use_swiglu_ffn);
        let (input, output, inputs) = if swiglu { ("weights_in", "weights_out", 2 * mlp) } else { ("fc1", "fc2", mlp) };
        Ok(Mlp {
            input: self.linear(&format!("{name}.{input}"), hidden, inputs, true)?,
            output: self.linear(&format!("{name}.{output}"), mlp, hidden, true)?,
            swiglu,
        })
    }

    /// The LayerNorm behind the last block.
    pub(crate) fn final_norm(&self) -> Result<Norm<'a>, EncodeError> {
        self.norm("layernorm")
    }

    fn norm(&self, name: &str) -> Result<Norm<'a>, EncodeError> {
        let shape = [self.model.config.hidden_size];
        Ok(Norm {
            scale: self.tensor(&format!("{name}.weight"), &shape)?,
            shift: self.tensor(&format!("{name}.bias"), &shape)?,
        })
    }

    fn linear(&self, name: &str, inputs: usize, outputs: usize, has_bias: bool) -> Result<Linear<'a>, EncodeError> {
        let bias = if has_bias { self.tensor(&format!("{name}.bias"), &[outputs])? } else { vec![0.0; outputs].into() };
        Ok(Linear { weight: self.tensor(&format!("{name}.weight"), &[outputs, inputs])?, bias, inputs })
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Cow<'a, [f32]>, EncodeError> {
        self.model.weights.tensor(name, shape).map_err(|e| EncodeError::Model(e.to_string()))
    }
}

/// `[outputs, 3, plane]` to `[outputs, plane, 3]`, the order of an image's samples.
fn channels_last(weight: &[f32], plane: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(weight.len());
    for filter in weight.chunks_exact(CHANNELS * plane) {
        out.extend((0..CHANNELS * plane).map(|i| filter[i % CHANNELS * plane + i / CHANNELS]));
    }
    out
}
