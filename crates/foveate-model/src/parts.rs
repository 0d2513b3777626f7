//! The layers that an engine computes, read from a [`Model`]'s tensors. Only this module maps tensors to layers.
//! Normalization of pixels is folded in, positions are fitted to the input, rotations of both kinds become one, and
//! every shape is checked.

use std::borrow::Cow;

use foveate_core::CHANNELS;
use foveate_encode::Pooling;

use crate::network::mlp_names;
use crate::rotary::{RotaryTable, pairs_apart};
use crate::{
    Activation, Grid, Model, ModelError, Network, Preprocess, ProbeShape, Rotary, TextModel, Weights,
    fold_normalization, interpolate_positions,
};

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

    /// The same, with the factors of a LayerScale that a model may lack.
    #[must_use]
    pub fn scaled_by(self, scale: Option<&[f32]>) -> Self {
        match scale {
            Some(factors) => self.scaled(factors),
            None => self,
        }
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
    pub scale1: Option<Cow<'a, [f32]>>,
    /// Before the feed-forward half.
    pub norm2: Norm<'a>,
    /// The feed-forward half.
    pub mlp: Mlp<'a>,
    /// LayerScale of the feed-forward half, `[hidden]`.
    pub scale2: Option<Cow<'a, [f32]>>,
}

/// The feed-forward half of a block: `output(activation(input(x)))`.
#[derive(Clone, Debug)]
pub struct Mlp<'a> {
    /// `fc1`; or if the activation is gated `weights_in`, whose first half of outputs is the gate of the second.
    pub input: Linear<'a>,
    /// `fc2` or `weights_out`.
    pub output: Linear<'a>,
    /// The function between them.
    pub activation: Activation,
}

/// The embedding of an image: `tokens = base`, with the patch embeddings added to the rows behind the prefix, and then
/// normalized if there is a `norm`.
#[derive(Clone, Debug)]
pub struct Embedding<'a> {
    /// Takes a patch of raw samples from 0 to 255, `[patch, patch, 3]`; normalization is folded in.
    pub patch: Linear<'a>,
    /// `[tokens, hidden]`: the class token with its position, the registers, and the patches' positions.
    pub base: Vec<f32>,
    /// The LayerNorm before the first block.
    pub norm: Option<Norm<'a>>,
}

/// Attention pooling: `x = output(attention(query, key(tokens), value(tokens)))`, then `x + mlp(norm(x))`.
#[derive(Clone, Debug)]
pub struct ProbeLayers<'a> {
    /// The probe's query, `[hidden]`, head by head.
    pub query: Vec<f32>,
    /// Keys of the tokens.
    pub key: Linear<'a>,
    /// Values of the tokens.
    pub value: Linear<'a>,
    /// Attention's output projection.
    pub output: Linear<'a>,
    /// Before the MLP.
    pub norm: Norm<'a>,
    /// The MLP.
    pub mlp: Mlp<'a>,
    /// Attention heads.
    pub heads: usize,
}

/// The embedding of words: a row of the table plus one of the positions.
#[derive(Clone, Debug)]
pub struct WordLayers<'a> {
    /// `[vocabulary, hidden]`.
    pub table: Cow<'a, [f32]>,
    /// `[context, hidden]`.
    pub positions: Cow<'a, [f32]>,
}

/// What [`Pooling::Head`] computes of the normalized tokens.
#[derive(Clone, Debug, Default)]
pub struct HeadLayers<'a> {
    /// Attention pooling; without it the class token is taken.
    pub probe: Option<ProbeLayers<'a>>,
    /// From the pooled token to the vector.
    pub projection: Option<Linear<'a>>,
}

/// Reads a model's parts on demand.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    network: &'a Network,
    weights: &'a dyn Weights,
    /// `None` for texts.
    preprocess: Option<&'a Preprocess>,
    grid: Grid,
}

impl<'a> Parts<'a> {
    /// Creates the parts for the input size of the model's preprocessing recipe.
    ///
    /// # Errors
    /// [`ModelError::InputSize`] if that is not a whole number of patches.
    pub fn new(model: &'a Model) -> Result<Self, ModelError> {
        let Model { network, preprocess, weights, .. } = model;
        let grid = network.grid(preprocess.crop)?;
        Ok(Self { network, weights: &**weights, preprocess: Some(preprocess), grid })
    }

    /// Creates the parts of a text tower, which has words instead of patches.
    pub fn of_text(model: &'a TextModel) -> Self {
        let grid = Grid { height: 0, width: 0 };
        Self { network: &model.network, weights: &*model.weights, preprocess: None, grid }
    }

    /// The grid of an image's patches.
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// The number of tokens of an image.
    pub fn tokens(&self) -> usize {
        self.network.tokens(self.grid)
    }

    /// Reads the embedding of an image.
    ///
    /// # Errors
    /// [`ModelError`], naming the tensor that is missing, has another shape or is unreadable; likewise the methods
    /// below.
    pub fn embedding(&self) -> Result<Embedding<'a>, ModelError> {
        let network = self.network;
        let Some(recipe) = self.preprocess else { return Err(ModelError::Lacks("image encoder")) };
        let hidden = network.hidden_size;
        let patch = network.patch_size;
        let projection = "embeddings.patch_embeddings.projection";
        let weight = self.tensor(&format!("{projection}.weight"), &[hidden, CHANNELS, patch, patch])?;
        let bias = self.bias(projection, hidden, network.patch_bias)?;
        let (weight, bias) = fold_normalization(&weight, &bias, recipe.mean, recipe.std, recipe.rescale_factor);
        let weight = channels_last(&weight, patch * patch);
        let inputs = patch * patch * CHANNELS;
        let patch = Linear { weight: weight.into(), bias: bias.into(), inputs };
        let norm = network.stem_norm.then(|| self.norm("embeddings.norm")).transpose()?;
        Ok(Embedding { patch, base: self.base_tokens()?, norm })
    }

    /// Reads the table of words, scaled, `[vocabulary, hidden]`, and the positions, `[context, hidden]`.
    ///
    /// # Errors
    /// As [`Self::embedding`]; [`ModelError::Lacks`] of a network for images.
    pub fn words(&self) -> Result<WordLayers<'a>, ModelError> {
        let Some(words) = self.network.words else { return Err(ModelError::Lacks("text tower")) };
        let hidden = self.network.hidden_size;
        let mut table = self.tensor("embeddings.word_embeddings", &[words.vocabulary, hidden])?;
        if words.scale != 1.0 {
            table.to_mut().iter_mut().for_each(|value| *value *= words.scale);
        }
        let positions = if words.sinusoids {
            sinusoids(words.context, hidden).into()
        } else {
            self.tensor("embeddings.position_embeddings", &[words.context, hidden])?
        };
        Ok(WordLayers { table, positions })
    }

    fn base_tokens(&self) -> Result<Vec<f32>, ModelError> {
        let network = self.network;
        let hidden = network.hidden_size;
        let registers = network.num_register_tokens;
        let mut base = Vec::with_capacity(self.tokens() * hidden);
        if network.class_token {
            base.extend_from_slice(&self.tensor("embeddings.cls_token", &[1, 1, hidden])?);
        }
        if registers > 0 {
            base.extend_from_slice(&self.tensor("embeddings.register_tokens", &[1, registers, hidden])?);
        }
        let Some(table) = network.positions else {
            base.resize(self.tokens() * hidden, 0.0);
            return Ok(base);
        };
        let stored = self.tensor("embeddings.position_embeddings", &[1, table.rows(), hidden])?;
        let (class, patches) = stored.split_at(if table.class_row { hidden } else { 0 });
        base.iter_mut().zip(class).for_each(|(value, position)| *value += position);
        base.extend_from_slice(&interpolate_positions(table, patches, hidden, self.grid));
        Ok(base)
    }

    /// Computes the rotation of the patches' queries and keys; the tokens before them are not rotated.
    pub fn rotary(&self) -> Option<RotaryTable> {
        let network = self.network;
        Some(RotaryTable::new(network.rotary?, self.grid, network.head_size()))
    }

    /// Reads block `layer`, counted from 0.
    ///
    /// # Errors
    /// As [`Self::embedding`].
    pub fn block(&self, layer: usize) -> Result<Block<'a>, ModelError> {
        let network = self.network;
        let hidden = network.hidden_size;
        let bias = network.attention_bias;
        let layer = format!("encoder.layer.{layer}");
        let attention = format!("{layer}.attention.attention");
        let (input, output) = mlp_names(network.activation);
        let input = (format!("{layer}.mlp.{input}"), network.activation.inputs() * network.mlp_hidden);
        Ok(Block {
            norm1: self.norm(&format!("{layer}.norm1"))?,
            query: self.rotated(&format!("{attention}.query"), bias.query)?,
            key: self.rotated(&format!("{attention}.key"), bias.key)?,
            value: self.linear(&format!("{attention}.value"), hidden, hidden, bias.value)?,
            output: self.linear(&format!("{layer}.attention.output.dense"), hidden, hidden, true)?,
            scale1: self.layer_scale(&format!("{layer}.layer_scale1.lambda1"))?,
            norm2: self.norm(&format!("{layer}.norm2"))?,
            mlp: Mlp {
                input: self.linear(&input.0, hidden, input.1, true)?,
                output: self.linear(&format!("{layer}.mlp.{output}"), network.mlp_hidden, hidden, true)?,
                activation: network.activation,
            },
            scale2: self.layer_scale(&format!("{layer}.layer_scale2.lambda1"))?,
        })
    }

    /// Reads queries or keys. Pairs that rotate together come to lie half a head apart.
    fn rotated(&self, name: &str, has_bias: bool) -> Result<Linear<'a>, ModelError> {
        let network = self.network;
        let hidden = network.hidden_size;
        let layer = self.linear(name, hidden, hidden, has_bias)?;
        Ok(match network.rotary {
            Some(Rotary::Absolute { .. }) => Linear {
                weight: pairs_apart(&layer.weight, hidden, network.head_size()).into(),
                bias: pairs_apart(&layer.bias, 1, network.head_size()).into(),
                inputs: hidden,
            },
            _ => layer,
        })
    }

    fn layer_scale(&self, name: &str) -> Result<Option<Cow<'a, [f32]>>, ModelError> {
        let network = self.network;
        network.layer_scale.then(|| self.tensor(name, &[network.hidden_size])).transpose()
    }

    /// Reads the LayerNorm behind the last block.
    ///
    /// # Errors
    /// As [`Self::embedding`].
    pub fn final_norm(&self) -> Result<Norm<'a>, ModelError> {
        self.norm("layernorm")
    }

    /// Reads the layers behind the final LayerNorm that `pooling` needs: those of the model's own vector, or none.
    ///
    /// # Errors
    /// As [`Self::embedding`].
    pub fn head(&self, pooling: Pooling) -> Result<HeadLayers<'a>, ModelError> {
        let network = self.network;
        if pooling != Pooling::Head {
            return Ok(HeadLayers::default());
        }
        let probe = network.probe.map(|probe| self.probe(probe)).transpose()?;
        let projection = network.projection.map(|projection| {
            self.linear("head.projection", network.hidden_size, projection.outputs, projection.has_bias)
        });
        Ok(HeadLayers { probe, projection: projection.transpose()? })
    }

    fn probe(&self, probe: ProbeShape) -> Result<ProbeLayers<'a>, ModelError> {
        let hidden = self.network.hidden_size;
        let token = self.tensor("head.probe", &[1, 1, hidden])?;
        let query = self.linear("head.attention.query", hidden, hidden, true)?;
        Ok(ProbeLayers {
            query: product(&query, &token),
            key: self.linear("head.attention.key", hidden, hidden, true)?,
            value: self.linear("head.attention.value", hidden, hidden, true)?,
            output: self.linear("head.attention.output", hidden, hidden, true)?,
            norm: self.norm("head.norm")?,
            mlp: Mlp {
                input: self.linear("head.mlp.fc1", hidden, probe.mlp_hidden, true)?,
                output: self.linear("head.mlp.fc2", probe.mlp_hidden, hidden, true)?,
                activation: self.network.activation,
            },
            heads: probe.heads,
        })
    }

    fn norm(&self, name: &str) -> Result<Norm<'a>, ModelError> {
        let shape = [self.network.hidden_size];
        Ok(Norm {
            scale: self.tensor(&format!("{name}.weight"), &shape)?,
            shift: self.tensor(&format!("{name}.bias"), &shape)?,
        })
    }

    fn linear(&self, name: &str, inputs: usize, outputs: usize, has_bias: bool) -> Result<Linear<'a>, ModelError> {
        let weight = self.tensor(&format!("{name}.weight"), &[outputs, inputs])?;
        Ok(Linear { weight, bias: self.bias(name, outputs, has_bias)?, inputs })
    }

    fn bias(&self, name: &str, outputs: usize, has_bias: bool) -> Result<Cow<'a, [f32]>, ModelError> {
        if has_bias { self.tensor(&format!("{name}.bias"), &[outputs]) } else { Ok(vec![0.0; outputs].into()) }
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Cow<'a, [f32]>, ModelError> {
        self.weights.tensor(name, shape)
    }
}

/// `x · weightᵀ + bias` of one row, summed in f64.
fn product(layer: &Linear<'_>, x: &[f32]) -> Vec<f32> {
    let mut out = Vec::with_capacity(layer.bias.len());
    for (row, bias) in layer.weight.chunks_exact(layer.inputs).zip(&*layer.bias) {
        let products = row.iter().zip(x).map(|(weight, value)| f64::from(*weight) * f64::from(*value));
        out.push((products.sum::<f64>() + f64::from(*bias)) as f32);
    }
    out
}

/// Transposes `[outputs, 3, plane]` to `[outputs, plane, 3]`, the order of an image's samples.
/// Sines and cosines of positions, `[context, hidden]`: the sines of all frequencies, then the cosines.
fn sinusoids(context: usize, hidden: usize) -> Vec<f32> {
    let half = hidden / 2;
    let step = (f64::ln(10_000.0) / (half as f64 - 1.0)) as f32;
    let mut table = vec![0.0; context * hidden];
    for (position, row) in table.chunks_exact_mut(hidden).enumerate() {
        for i in 0..half {
            let angle = position as f32 * (i as f32 * -step).exp();
            row[i] = angle.sin();
            row[half + i] = angle.cos();
        }
    }
    table
}

fn channels_last(weight: &[f32], plane: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(weight.len());
    for filter in weight.chunks_exact(CHANNELS * plane) {
        out.extend((0..CHANNELS * plane).map(|i| filter[i % CHANNELS * plane + i / CHANNELS]));
    }
    out
}

/// Transposes `[outputs, inputs]` to `[inputs, outputs]`, in squares that stay in the cache.
pub(crate) fn transposed(weight: &[f32], inputs: usize) -> Vec<f32> {
    const SIDE: usize = 32;
    let outputs = weight.len() / inputs;
    let mut result = vec![0.0; weight.len()];
    for first_output in (0..outputs).step_by(SIDE) {
        for first_input in (0..inputs).step_by(SIDE) {
            for output in first_output..outputs.min(first_output + SIDE) {
                for input in first_input..inputs.min(first_input + SIDE) {
                    result[input * outputs + output] = weight[output * inputs + input];
                }
            }
        }
    }
    result
}
