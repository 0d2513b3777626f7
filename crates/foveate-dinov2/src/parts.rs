//! The layers that an engine computes, read from a [`Model`]'s tensors. Only this module maps tensors to layers.
//! Normalization of pixels is folded in, positions are fitted to the input, and every shape is checked.

use std::borrow::Cow;

use foveate_core::CHANNELS;

use crate::{Grid, Model, ModelError, fold_normalization, interpolate_positions};

/// `y = x · weightᵀ + bias`.
#[derive(Clone, Debug)]
pub struct Linear<'a> {
    /// `[outputs, inputs]` row-major.
    pub weight: Cow<'a, [f32]>,
    /// `[outputs]`; zeros if the checkpoint has none.
    pub bias: Cow<'a, [f32]>,
    /// Width of `x`.
    pub inputs: usize,
}

impl Linear<'_> {
    /// Multiplies every output by its factor, which folds LayerScale. Each value is rounded once.
    #[must_use]
    pub fn scaled(mut self, factors: &[f32]) -> Self {
        for (row, factor) in self.weight.to_mut().chunks_exact_mut(self.inputs).zip(factors) {
            row.iter_mut().for_each(|weight| *weight *= factor);
        }
        self.bias.to_mut().iter_mut().zip(factors).for_each(|(bias, factor)| *bias *= factor);
        self
    }
}

/// A LayerNorm's factors and offsets.
#[derive(Clone, Debug)]
pub struct Norm<'a> {
    /// Factor of each component.
    pub scale: Cow<'a, [f32]>,
    /// Offset of each component.
    pub shift: Cow<'a, [f32]>,
}

/// One transformer block: `x += scale1 · output(attention(norm1(x)))`, then `x += scale2 · mlp(norm2(x))`.
#[derive(Clone, Debug)]
pub struct Block<'a> {
    /// Before attention.
    pub norm1: Norm<'a>,
    /// Queries, head by head.
    pub query: Linear<'a>,
    /// Keys, likewise.
    pub key: Linear<'a>,
    /// Values, likewise.
    pub value: Linear<'a>,
    /// Attention's output projection.
    pub output: Linear<'a>,
    /// LayerScale of attention, `[hidden]`.
    pub scale1: Cow<'a, [f32]>,
    /// Before the feed-forward half.
    pub norm2: Norm<'a>,
    /// The feed-forward half.
    pub mlp: Mlp<'a>,
    /// LayerScale of the feed-forward half, `[hidden]`.
    pub scale2: Cow<'a, [f32]>,
}

/// The feed-forward half of a block.
#[derive(Clone, Debug)]
pub struct Mlp<'a> {
    /// `fc1`; or with SwiGLU `weights_in`, whose first half of outputs is the gate of the second.
    pub input: Linear<'a>,
    /// `fc2` or `weights_out`.
    pub output: Linear<'a>,
    /// `silu(gate) · up` instead of `gelu`.
    pub swiglu: bool,
}

/// The embedding of an image: `tokens = base`, with the patch embeddings added to the rows behind the prefix.
#[derive(Clone, Debug)]
pub struct Embedding<'a> {
    /// Takes a patch of raw u8 samples, `[patch, patch, 3]`; normalization is folded in.
    pub patch: Linear<'a>,
    /// `[tokens, hidden]`: the class token with its position, the registers, and the patches' positions.
    pub base: Vec<f32>,
}

/// Reads a model's parts on demand.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    model: &'a Model,
    grid: Grid,
}

impl<'a> Parts<'a> {
    /// Creates the parts for the input size of the model's preprocessing recipe.
    ///
    /// # Errors
    /// [`ModelError::InputSize`] if that is not a whole number of patches.
    pub fn new(model: &'a Model) -> Result<Self, ModelError> {
        Ok(Self { model, grid: model.config.grid(model.preprocess.crop)? })
    }

    /// The grid of an image's patches.
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// The number of tokens of an image.
    pub fn tokens(&self) -> usize {
        self.model.config.tokens(self.grid)
    }

    /// Reads the embedding of an image.
    ///
    /// # Errors
    /// [`ModelError`], naming the tensor that is missing, has another shape or is unreadable; likewise the methods
    /// below.
    pub fn embedding(&self) -> Result<Embedding<'a>, ModelError> {
        let config = &self.model.config;
        let recipe = &self.model.preprocess;
        let hidden = config.hidden_size;
        let patch = config.patch_size;
        let projection = "embeddings.patch_embeddings.projection";
        let weight = self.tensor(&format!("{projection}.weight"), &[hidden, CHANNELS, patch, patch])?;
        let bias = self.tensor(&format!("{projection}.bias"), &[hidden])?;
        let (weight, bias) = fold_normalization(&weight, &bias, recipe.mean, recipe.std, recipe.rescale_factor);
        let weight = channels_last(&weight, patch * patch);
        let inputs = patch * patch * CHANNELS;
        let patch = Linear { weight: weight.into(), bias: bias.into(), inputs };
        Ok(Embedding { patch, base: self.base_tokens()? })
    }

    fn base_tokens(&self) -> Result<Vec<f32>, ModelError> {
        let config = &self.model.config;
        let hidden = config.hidden_size;
        let registers = config.num_register_tokens;
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

    /// Reads block `layer`, counted from 0.
    ///
    /// # Errors
    /// As [`Self::embedding`].
    pub fn block(&self, layer: usize) -> Result<Block<'a>, ModelError> {
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

    fn mlp(&self, name: &str) -> Result<Mlp<'a>, ModelError> {
        let config = &self.model.config;
        let hidden = config.hidden_size;
        let mlp = config.mlp_hidden;
        let swiglu = config.use_swiglu_ffn;
        let (input, output, inputs) = if swiglu { ("weights_in", "weights_out", 2 * mlp) } else { ("fc1", "fc2", mlp) };
        Ok(Mlp {
            input: self.linear(&format!("{name}.{input}"), hidden, inputs, true)?,
            output: self.linear(&format!("{name}.{output}"), mlp, hidden, true)?,
            swiglu,
        })
    }

    /// Reads the LayerNorm behind the last block.
    ///
    /// # Errors
    /// As [`Self::embedding`].
    pub fn final_norm(&self) -> Result<Norm<'a>, ModelError> {
        self.norm("layernorm")
    }

    fn norm(&self, name: &str) -> Result<Norm<'a>, ModelError> {
        let shape = [self.model.config.hidden_size];
        Ok(Norm {
            scale: self.tensor(&format!("{name}.weight"), &shape)?,
            shift: self.tensor(&format!("{name}.bias"), &shape)?,
        })
    }

    fn linear(&self, name: &str, inputs: usize, outputs: usize, has_bias: bool) -> Result<Linear<'a>, ModelError> {
        let bias = if has_bias { self.tensor(&format!("{name}.bias"), &[outputs])? } else { vec![0.0; outputs].into() };
        Ok(Linear { weight: self.tensor(&format!("{name}.weight"), &[outputs, inputs])?, bias, inputs })
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Cow<'a, [f32]>, ModelError> {
        self.model.weights.tensor(name, shape)
    }
}

/// Transposes `[outputs, 3, plane]` to `[outputs, plane, 3]`, the order of an image's samples.
fn channels_last(weight: &[f32], plane: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(weight.len());
    for filter in weight.chunks_exact(CHANNELS * plane) {
        out.extend((0..CHANNELS * plane).map(|i| filter[i % CHANNELS * plane + i / CHANNELS]));
    }
    out
}
