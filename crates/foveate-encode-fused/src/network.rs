//! The fused forward of one image, or of some texts, on a CPU.
//!
//! An image's tokens are divided into one or more [`TokenPart`]s. All operations but attention concern a single token,
//! and attention reads all tokens' keys and values. Each block therefore has two steps that the parts may take in
//! parallel, [`CpuNetwork::project`] and [`CpuNetwork::advance`]. The division does not change the bits of a part's
//! rows.
//!
//! The weights include the pixels' normalization, the attention's scale and LayerScale, folded in at load. The last
//! block skips the tokens that no pooled vector reads. Attention pooling is always computed in f32.

use std::ops::Range;

use foveate_core::{CHANNELS, PixelBatch};
use foveate_encode::Pooling;
use foveate_model::parts::{self, Parts};
use foveate_model::{Activation, Model, ModelError, Network, RotaryTable};

use crate::balance::balance;
use crate::kernel::amx::Tiles;
use crate::kernel::attention::{self, KeyValues, PartAttention, Round, padded_head_width};
use crate::kernel::dot::Bf16Unit;
use crate::kernel::isa::{Isa, Precision};
use crate::kernel::linear::{Finish, LinearInput, LinearOutput, LinearProduct, PackedLinear};
use crate::kernel::norm::LayerNorm;
use crate::kernel::rotary::Rotate;
use crate::kernel::words::Words;
use crate::kernel::{MAX_TILE_ROWS, tile_attention};

/// The MLP's hidden layer is computed in slices of about this many units, which stay in the second-level cache.
const MLP_SLICE: usize = 384;

/// A model with its weights packed for this processor.
pub(crate) struct CpuNetwork {
    isa: Isa,
    precision: Precision,
    network: Network,
    pooling: Pooling,
    /// A head's stored width: padded with zeros to whole vectors.
    head_width: usize,
    /// Tokens of an image, or the most of some texts.
    tokens: usize,
    /// The number of leading tokens that the vector depends on behind the last block's attention.
    tokens_read: usize,
    /// `None` for texts, whose tokens are embedded elsewhere.
    patch: Option<PackedLinear>,
    base: Vec<f32>,
    stem_norm: Option<NormWeights>,
    rotary: Option<RotaryTable>,
    blocks: Vec<PackedBlock>,
    norm: NormWeights,
    probe: Option<PackedProbe>,
    projection: Option<PackedLinear>,
}

struct NormWeights {
    scale: Vec<f32>,
    shift: Vec<f32>,
}

struct PackedBlock {
    norm1: NormWeights,
    query: PackedLinear,
    /// Keys of all heads, then values of all heads.
    key_value: PackedLinear,
    output: PackedLinear,
    norm2: NormWeights,
    mlp: Vec<MlpSlice>,
}

/// Attention pooling.
struct PackedProbe {
    heads: usize,
    head_width: usize,
    /// The probe's query, with the attention's scale.
    query: Vec<f32>,
    key_value: PackedLinear,
    output: PackedLinear,
    norm: NormWeights,
    mlp: Vec<MlpSlice>,
}

/// Some units of the MLP's hidden layer: their weights, and the weights of their contribution to the output.
struct MlpSlice {
    input: PackedLinear,
    gate: Option<PackedLinear>,
    output: PackedLinear,
}

/// Some consecutive tokens of an image, with the memory for their pass through the network.
pub(crate) struct TokenPart {
    first: usize,
    /// Tokens whose values are still needed: all of them until the last block.
    active: usize,
    tokens: usize,
    /// The tokens that each one attends to; empty if it is all of them.
    pub(crate) seen: Vec<Range<usize>>,
    /// `[tokens, hidden]`.
    pub(crate) x: Vec<f32>,
    pub(crate) normed: Vec<f32>,
    /// `[tokens, heads · head_width]`.
    q: Vec<f32>,
    context: Vec<f32>,
    /// A slice of the MLP's hidden layer, or patches' samples.
    wide: Vec<f32>,
    /// `normed` or `context`, and `wide`, in fewer bits; unused in f32.
    words: Option<Words>,
    wide_words: Option<Words>,
    attention: attention::AttentionScratch,
}

impl CpuNetwork {
    pub(crate) fn new(model: &Model, pooling: Pooling, isa: Isa, precision: Precision) -> Result<Self, ModelError> {
        model.network.dim(pooling)?;
        let parts = Parts::new(model)?;
        let embedding = parts.embedding()?;
        let mut network = Self::of_blocks(&parts, &model.network, pooling, isa, precision)?;
        let exact = Pack { isa, precision: Precision::F32, head: model.network.head_size() };
        network.tokens = parts.tokens();
        network.tokens_read = model.network.tokens_read(pooling, network.tokens);
        network.patch = Some(exact.linear(&embedding.patch));
        network.base = embedding.base;
        network.stem_norm = embedding.norm.map(NormWeights::new);
        network.rotary = parts.rotary();
        Ok(network)
    }

    /// Packs a text tower, without its table of words, for up to `tokens` tokens at a time.
    pub(crate) fn of_text(
        parts: &Parts<'_>,
        network: &Network,
        tokens: usize,
        isa: Isa,
        precision: Precision,
    ) -> Result<Self, ModelError> {
        let blocks = Self::of_blocks(parts, network, Pooling::Head, isa, precision)?;
        Ok(Self { tokens, tokens_read: tokens, ..blocks })
    }

    /// Packs the blocks and what follows them.
    fn of_blocks(
        layers: &Parts<'_>,
        network: &Network,
        pooling: Pooling,
        isa: Isa,
        precision: Precision,
    ) -> Result<Self, ModelError> {
        let pack = Pack { isa, precision, head: network.head_size() };
        let exact = Pack { precision: Precision::F32, ..pack };
        let mut blocks = Vec::new();
        for layer in 0..network.num_hidden_layers {
            blocks.push(pack.block(layers.block(layer)?));
        }
        let head = layers.head(pooling)?;
        Ok(Self {
            isa,
            precision,
            pooling,
            head_width: pack.head_width(),
            tokens: 0,
            tokens_read: 0,
            patch: None,
            base: Vec::new(),
            stem_norm: None,
            rotary: None,
            blocks,
            norm: NormWeights::new(layers.final_norm()?),
            probe: head.probe.map(|probe| exact.probe(probe)),
            projection: head.projection.map(|projection| exact.linear(&projection)),
            network: network.clone(),
        })
    }

    /// The number of tokens of an image.
    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }

    /// The number of tokens at whose multiples an image may be divided.
    pub(crate) fn step(&self) -> usize {
        if self.attention_units().is_some_and(|(_, tiles)| tiles.is_some()) {
            tile_attention::STEP
        } else {
            MAX_TILE_ROWS
        }
    }

    /// The number of blocks.
    pub(crate) fn depth(&self) -> usize {
        self.blocks.len()
    }

    /// Allocates memory for tokens `first..first + tokens`.
    pub(crate) fn part(&self, first: usize, tokens: usize) -> (TokenPart, KeyValues) {
        let hidden = self.network.hidden_size;
        let heads = self.network.num_attention_heads;
        let slices = self.blocks.iter().flat_map(|block| &block.mlp);
        let slices = slices.chain(self.probe.iter().flat_map(|probe| &probe.mlp));
        let patch = self.patch.as_ref().map(PackedLinear::inputs);
        let wide = slices.map(|slice| slice.input.outputs()).chain(patch).max().unwrap_or(0);
        let words = |values| (self.precision != Precision::F32).then(|| Words::new(tokens, values));
        let widest = self.probe.as_ref().map_or(self.head_width, |probe| probe.head_width.max(self.head_width));
        let attention = attention::AttentionScratch::new(self.tokens, widest);
        let part = TokenPart {
            first,
            active: tokens,
            tokens,
            seen: Vec::new(),
            x: vec![0.0; tokens * hidden],
            normed: vec![0.0; tokens * hidden],
            q: vec![0.0; tokens * heads * self.head_width],
            context: vec![0.0; tokens * heads * self.head_width],
            wide: vec![0.0; tokens * wide],
            words: words(hidden.max(heads * self.head_width)),
            wide_words: words(wide),
            attention,
        };
        (part, KeyValues::new(heads, tokens, self.head_width, self.attention_units()))
    }

    /// Allocates memory for the keys and values that attention pooling reads of a part.
    pub(crate) fn pooled(&self, tokens: usize) -> Option<KeyValues> {
        self.probe.as_ref().map(|probe| KeyValues::new(probe.heads, tokens, probe.head_width, None))
    }

    /// Embeds image 0 of `image` into a part.
    pub(crate) fn embed(&self, image: PixelBatch<'_>, part: &mut TokenPart) {
        let Some(patch) = &self.patch else { return };
        let hidden = self.network.hidden_size;
        part.active = part.tokens;
        part.x.copy_from_slice(&self.base[part.first * hidden..][..part.tokens * hidden]);
        let prefix = self.network.prefix_tokens().saturating_sub(part.first).min(part.tokens);
        let first_patch = part.first + prefix - self.network.prefix_tokens();
        let patches = &mut part.wide[..(part.tokens - prefix) * patch.inputs()];
        gather_patches(image, self.network.patch_size, first_patch, patches);
        self.isa.run(LinearProduct {
            x: LinearInput::F32(patches),
            layer: patch,
            finish: Finish::Add,
            out: LinearOutput::rows(&mut part.x[prefix * hidden..], hidden),
        });
        if let Some(norm) = &self.stem_norm {
            self.normalize(norm, part, None);
            std::mem::swap(&mut part.x, &mut part.normed);
        }
    }

    /// The first step of block `layer`: queries, keys and values of a part's tokens.
    pub(crate) fn project(&self, layer: usize, part: &mut TokenPart, key_values: &mut KeyValues) {
        let block = &self.blocks[layer];
        let heads = self.network.num_attention_heads;
        let tokens = part.tokens;
        self.normalize(&block.norm1, part, Some(&block.query));
        self.isa.run(LinearProduct {
            x: rows(&part.normed, &part.words, tokens),
            layer: &block.key_value,
            finish: Finish::Store,
            out: LinearOutput::blocks(&mut key_values.data, tokens, self.head_width),
        });
        let values = heads * tokens * self.head_width;
        self.rotate(part, &mut key_values.data[..values], tokens, (self.head_width, tokens * self.head_width));
        if self.precision != Precision::F32 {
            self.isa.run(Round { key_values, heads, head_width: self.head_width });
        }
        if layer + 1 == self.depth() {
            part.active = tokens.min(self.tokens_read.saturating_sub(part.first));
        }
        self.isa.run(LinearProduct {
            x: rows(&part.normed[..part.active * self.network.hidden_size], &part.words, part.active),
            layer: &block.query,
            finish: Finish::Store,
            out: LinearOutput::rows(&mut part.q, heads * self.head_width),
        });
        let mut queries = std::mem::take(&mut part.q);
        self.rotate(part, &mut queries, part.active, (heads * self.head_width, self.head_width));
        part.q = queries;
    }

    /// Turns queries or keys of a part's first tokens, if the model's positions are rotations.
    fn rotate(&self, part: &TokenPart, values: &mut [f32], tokens: usize, strides: (usize, usize)) {
        let Some(table) = &self.rotary else { return };
        let first = part.first as isize - self.network.prefix_tokens() as isize;
        let heads = self.network.num_attention_heads;
        self.isa.run(Rotate { table, values, first, tokens, heads, strides });
    }

    /// The second step of block `layer`, with the keys and values of all the image's parts: attention and MLP.
    pub(crate) fn advance(&self, layer: usize, part: &mut TokenPart, key_values: &[KeyValues]) {
        let block = &self.blocks[layer];
        let hidden = self.network.hidden_size;
        let width = self.network.num_attention_heads * self.head_width;
        self.isa.run(PartAttention {
            q: &part.q[..part.active * width],
            keys: key_values,
            heads: self.network.num_attention_heads,
            head_width: self.head_width,
            seen: &part.seen,
            scratch: &mut part.attention,
            out: &mut part.context,
        });
        let context = &part.context[..part.active * width];
        self.round(&block.output, context, &mut part.words);
        self.isa.run(LinearProduct {
            x: rows(context, &part.words, part.active),
            layer: &block.output,
            finish: Finish::Add,
            out: LinearOutput::rows(&mut part.x, hidden),
        });
        self.normalize(&block.norm2, part, block.mlp.first().map(|slice| &slice.input));
        for slice in &block.mlp {
            self.mlp(slice, part);
        }
    }

    fn mlp(&self, slice: &MlpSlice, part: &mut TokenPart) {
        let hidden = self.network.hidden_size;
        let normed = rows(&part.normed[..part.active * hidden], &part.words, part.active);
        let width = slice.input.outputs();
        let first = match self.network.activation {
            Activation::Gelu => Finish::Gelu,
            Activation::GeluTanh => Finish::GeluTanh,
            Activation::QuickGelu => Finish::QuickGelu,
            Activation::Relu => Finish::Relu,
            Activation::GatedSilu => Finish::Store,
        };
        let steps = [Some((&slice.input, first)), slice.gate.as_ref().map(|gate| (gate, Finish::Gate))];
        for (layer, finish) in steps.into_iter().flatten() {
            self.isa.run(LinearProduct { x: normed, layer, finish, out: LinearOutput::rows(&mut part.wide, width) });
        }
        let wide = &part.wide[..part.active * width];
        self.round(&slice.output, wide, &mut part.wide_words);
        self.isa.run(LinearProduct {
            x: rows(wide, &part.wide_words, part.active),
            layer: &slice.output,
            finish: Finish::Add,
            out: LinearOutput::rows(&mut part.x, hidden),
        });
    }

    /// Writes normalized tokens, as `reader` reads them if there is one.
    fn normalize(&self, norm: &NormWeights, part: &mut TokenPart, reader: Option<&PackedLinear>) {
        let values = part.active * self.network.hidden_size;
        let format = reader.and_then(|layer| Some((layer.format()?, layer.width())));
        self.isa.run(LayerNorm {
            x: &part.x[..values],
            scale: &norm.scale,
            shift: &norm.shift,
            eps: self.network.layer_norm_eps as f32,
            out: &mut part.normed[..values],
            words: format.zip(part.words.as_mut()).map(|((format, width), words)| words.shaped(format, width)),
        });
    }

    /// Rounds a product's input as `layer` reads it, unless it reads f32.
    fn round(&self, layer: &PackedLinear, x: &[f32], words: &mut Option<Words>) {
        if let (Some(format), Some(words)) = (layer.format(), words) {
            self.isa.run(words.fill(format, layer.width(), x, layer.inputs()));
        }
    }

    /// The units that multiply in attention; `None` for f32.
    fn attention_units(&self) -> Option<(Bf16Unit, Option<Tiles>)> {
        // Tile registers attend to all tokens.
        let tiles = self.isa.tiles().filter(|_| self.network.words.is_none());
        (self.precision != Precision::F32).then(|| (self.isa.bf16_unit(), tiles))
    }

    /// The step behind the last block: a part's tokens after the final LayerNorm, and what attention pooling reads.
    pub(crate) fn finish(&self, part: &mut TokenPart, pooled: Option<&mut KeyValues>) {
        self.normalize(&self.norm, part, None);
        if let (Some(probe), Some(key_values)) = (&self.probe, pooled) {
            self.isa.run(LinearProduct {
                x: LinearInput::F32(&part.normed),
                layer: &probe.key_value,
                finish: Finish::Store,
                out: LinearOutput::blocks(&mut key_values.data, part.tokens, probe.head_width),
            });
        }
    }

    /// Pools the vector of an image whose parts are finished.
    pub(crate) fn pool(&self, parts: &mut [TokenPart], pooled: &[KeyValues], out: &mut [f32]) {
        let hidden = self.network.hidden_size;
        match self.pooling {
            Pooling::Cls => out.copy_from_slice(&parts[0].normed[..hidden]),
            Pooling::Mean => self.mean_of_patches(parts, out),
            Pooling::ClsMean => {
                let (class, mean) = out.split_at_mut(hidden);
                class.copy_from_slice(&parts[0].normed[..hidden]);
                self.mean_of_patches(parts, mean);
            }
            Pooling::Register => {
                let at = usize::from(self.network.class_token) * hidden;
                out.copy_from_slice(&parts[0].normed[at..at + hidden]);
            }
            Pooling::Head => self.head(&mut parts[0], pooled, out),
        }
    }

    /// Computes the model's own vector; `part` is the first.
    fn head(&self, part: &mut TokenPart, pooled: &[KeyValues], out: &mut [f32]) {
        let hidden = self.network.hidden_size;
        if let Some(probe) = &self.probe {
            self.attend(probe, part, pooled);
        }
        self.projected(&part.normed[..hidden], out);
    }

    /// Computes the vectors of pooled tokens, `[n, hidden]` to `[n, dim]`.
    pub(crate) fn projected(&self, tokens: &[f32], out: &mut [f32]) {
        match &self.projection {
            None => out.copy_from_slice(tokens),
            Some(projection) => self.isa.run(LinearProduct {
                x: LinearInput::F32(tokens),
                layer: projection,
                finish: Finish::Store,
                out: LinearOutput::rows(out, projection.outputs()),
            }),
        }
    }

    /// Attention pooling, into the part's first normalized token.
    fn attend(&self, probe: &PackedProbe, part: &mut TokenPart, pooled: &[KeyValues]) {
        let hidden = self.network.hidden_size;
        let width = probe.heads * probe.head_width;
        let mut context = vec![0.0; width];
        self.isa.run(PartAttention {
            q: &probe.query,
            keys: pooled,
            heads: probe.heads,
            head_width: probe.head_width,
            seen: &[],
            scratch: &mut part.attention,
            out: &mut context,
        });
        self.isa.run(LinearProduct {
            x: LinearInput::F32(&context),
            layer: &probe.output,
            finish: Finish::Store,
            out: LinearOutput::rows(&mut part.x, hidden),
        });
        part.active = 1;
        self.normalize(&probe.norm, part, None);
        let words = (part.words.take(), part.wide_words.take());
        probe.mlp.iter().for_each(|slice| self.mlp(slice, part));
        (part.words, part.wide_words) = words;
        part.normed[..hidden].copy_from_slice(&part.x[..hidden]);
    }

    /// Sums in f64, token by token.
    fn mean_of_patches(&self, parts: &[TokenPart], mean: &mut [f32]) {
        const COLUMNS: usize = 16;
        let hidden = mean.len();
        let prefix = self.network.prefix_tokens();
        let count = (self.tokens - prefix) as f64;
        for (i, mean) in mean.chunks_mut(COLUMNS).enumerate() {
            let mut sums = [0.0f64; COLUMNS];
            let rows = parts.iter().flat_map(|part| part.normed.chunks_exact(hidden));
            for row in rows.skip(prefix) {
                sums.iter_mut().zip(&row[i * COLUMNS..]).for_each(|(sum, &value)| *sum += f64::from(value));
            }
            mean.iter_mut().zip(sums).for_each(|(mean, sum)| *mean = (sum / count) as f32);
        }
    }
}

/// Returns a product's input: `count` rows of `words` if there are any, else `x`.
fn rows<'a>(x: &'a [f32], words: &'a Option<Words>, count: usize) -> LinearInput<'a> {
    words.as_ref().map_or(LinearInput::F32(x), |words| LinearInput::Words(words, count))
}

/// Copies the samples of patches `first..` as f32, as many patches as `out` holds, each `[patch, patch, 3]`.
fn gather_patches(image: PixelBatch<'_>, patch: usize, first: usize, out: &mut [f32]) {
    let columns = image.size().width as usize / patch;
    let line = image.size().width as usize * CHANNELS;
    let row = patch * CHANNELS;
    for (i, out) in out.chunks_exact_mut(patch * row).enumerate() {
        let y = (first + i) / columns;
        let x = (first + i) % columns;
        let corner = y * patch * line + x * row;
        for (dy, out) in out.chunks_exact_mut(row).enumerate() {
            image.widen(corner + dy * line, out);
        }
    }
}

impl NormWeights {
    fn new(norm: parts::Norm<'_>) -> Self {
        Self { scale: norm.scale.into_owned(), shift: norm.shift.into_owned() }
    }
}

/// Folds and packs a model's parts.
#[derive(Clone, Copy)]
struct Pack {
    isa: Isa,
    precision: Precision,
    /// Width of a head.
    head: usize,
}

impl Pack {
    /// The stored width of a head.
    fn head_width(&self) -> usize {
        padded_head_width(self.isa, self.head)
    }

    fn linear(&self, layer: &parts::Linear<'_>) -> PackedLinear {
        PackedLinear::new(self.isa, self.precision, &layer.weight, &layer.bias, layer.inputs)
    }

    fn block(&self, mut block: parts::Block<'_>) -> PackedBlock {
        if self.precision == Precision::I8 {
            balance(&mut block);
        }
        let mut query = self.pad_heads(&block.query);
        let scale = 1.0 / (self.head as f32).sqrt();
        query.weight.to_mut().iter_mut().chain(query.bias.to_mut()).for_each(|value| *value *= scale);
        PackedBlock {
            norm1: NormWeights::new(block.norm1),
            query: self.linear(&query),
            key_value: self.key_value(&block.key, &block.value),
            output: self.linear(&self.pad_head_inputs(&block.output.scaled_by(block.scale1.as_deref()))),
            norm2: NormWeights::new(block.norm2),
            mlp: self.mlp(block.mlp, block.scale2.as_deref()),
        }
    }

    fn probe(self, probe: parts::ProbeLayers<'_>) -> PackedProbe {
        let pack = Self { head: probe.query.len() / probe.heads, ..self };
        let mut query = pad(&probe.query, [pack.head, pack.head_width()]);
        let scale = 1.0 / (pack.head as f32).sqrt();
        query.iter_mut().for_each(|value| *value *= scale);
        PackedProbe {
            heads: probe.heads,
            head_width: pack.head_width(),
            query,
            key_value: pack.key_value(&probe.key, &probe.value),
            output: pack.linear(&pack.pad_head_inputs(&probe.output)),
            norm: NormWeights::new(probe.norm),
            mlp: pack.mlp(probe.mlp, None),
        }
    }

    /// Packs keys of all heads, then values of all heads.
    fn key_value(&self, key: &parts::Linear<'_>, value: &parts::Linear<'_>) -> PackedLinear {
        let mut key_value = self.pad_heads(key);
        let value = self.pad_heads(value);
        key_value.weight.to_mut().extend_from_slice(&value.weight);
        key_value.bias.to_mut().extend_from_slice(&value.bias);
        self.linear(&key_value)
    }

    /// Adds zero outputs behind each head's, up to the stored width.
    fn pad_heads<'b>(&self, layer: &'b parts::Linear<'_>) -> parts::Linear<'b> {
        let width = self.head_width();
        parts::Linear {
            weight: pad(&layer.weight, [self.head, width].map(|rows| rows * layer.inputs)).into(),
            bias: pad(&layer.bias, [self.head, width]).into(),
            inputs: layer.inputs,
        }
    }

    /// Adds zero inputs behind each head's, up to the stored width.
    fn pad_head_inputs<'b>(&self, layer: &'b parts::Linear<'_>) -> parts::Linear<'b> {
        let width = self.head_width();
        parts::Linear {
            weight: pad(&layer.weight, [self.head, width]).into(),
            bias: (&*layer.bias).into(),
            inputs: layer.inputs / self.head * width,
        }
    }

    fn mlp(&self, mlp: parts::Mlp<'_>, scale: Option<&[f32]>) -> Vec<MlpSlice> {
        let hidden = mlp.output.inputs;
        let is_gated = mlp.activation == Activation::GatedSilu;
        let output = mlp.output.scaled_by(scale);
        let count = hidden.div_ceil(MLP_SLICE);
        let width = hidden.div_ceil(count);
        let slices = (0..hidden).step_by(width).map(|first| {
            let units = first..hidden.min(first + width);
            let up = if is_gated { units.start + hidden..units.end + hidden } else { units.clone() };
            MlpSlice {
                input: self.outputs(&mlp.input, up),
                gate: is_gated.then(|| self.outputs(&mlp.input, units.clone())),
                output: self.inputs(&output, units),
            }
        });
        slices.collect()
    }

    /// Returns a range of a layer's outputs.
    fn outputs(&self, layer: &parts::Linear<'_>, range: Range<usize>) -> PackedLinear {
        let weight = &layer.weight[range.start * layer.inputs..range.end * layer.inputs];
        PackedLinear::new(self.isa, self.precision, weight, &layer.bias[range], layer.inputs)
    }

    /// Returns the part of a layer that reads a range of its inputs; the first part has the bias.
    fn inputs(&self, layer: &parts::Linear<'_>, range: Range<usize>) -> PackedLinear {
        let rows = layer.weight.chunks_exact(layer.inputs);
        let weight: Vec<f32> = rows.flat_map(|row| &row[range.clone()]).copied().collect();
        let zeros = vec![0.0; layer.bias.len()];
        let bias = if range.start == 0 { &*layer.bias } else { &zeros };
        PackedLinear::new(self.isa, self.precision, &weight, bias, range.len())
    }
}

/// Pads every `run` values with zeros to `padded`.
pub(crate) fn pad(values: &[f32], [run, padded]: [usize; 2]) -> Vec<f32> {
    let mut out = vec![0.0; values.len() / run * padded];
    for (out, values) in out.chunks_exact_mut(padded).zip(values.chunks_exact(run)) {
        out[..run].copy_from_slice(values);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(model: &Model, isa: Isa, precision: Precision, pixels: &[u8]) -> Vec<f32> {
        let network = CpuNetwork::new(model, Pooling::ClsMean, isa, precision).unwrap();
        let (part, key_values) = network.part(0, network.tokens());
        let (mut parts, mut key_values) = ([part], [key_values]);
        network.embed(PixelBatch::new(pixels, model.preprocess.crop).unwrap(), &mut parts[0]);
        for layer in 0..network.depth() {
            network.project(layer, &mut parts[0], &mut key_values[0]);
            network.advance(layer, &mut parts[0], &key_values);
        }
        let mut out = vec![0.0; 2 * model.network.hidden_size];
        network.finish(&mut parts[0], None);
        network.pool(&mut parts, &[], &mut out);
        out
    }

    /// The instruction sets of a family give the same bits. Scalar code does not fuse multiplication and addition, and
    /// tile registers add products of bf16, also those of attention, in an order of their own.
    #[test]
    fn every_instruction_set_of_a_family_gives_the_same_vector() {
        for (precision, slight) in [(Precision::F32, 2e-5), (Precision::Bf16, 0.1), (Precision::I8, 0.1)] {
            // How far two families are apart on the model that shows it most: bytes hide it on some.
            let mut apart: Vec<(&str, &str, f32)> = Vec::new();
            for name in ["tiny", "tiny-reg", "tiny-swiglu"] {
                let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/models");
                let model = Model::from_folder(&std::path::Path::new(folder).join(name)).unwrap();
                let pixels = foveate_encode::conformance::noise(model.preprocess.crop, 5);
                let mut families: Vec<(&str, Vec<f32>)> = Vec::new();
                for isa in Isa::all() {
                    let (family, vector) = (isa.family(precision), vector(&model, isa, precision, &pixels));
                    if let Some((_, same)) = families.iter().find(|(known, _)| *known == family) {
                        assert!(*same == vector, "{name} in {precision:?} on {}", isa.name());
                        continue;
                    }
                    for (other, theirs) in &families {
                        let most = vector.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                        assert!(most < slight, "{name} in {precision:?}, {family} and {other}: {most}");
                        match apart.iter_mut().find(|(one, another, _)| (*one, *another) == (family, *other)) {
                            Some((_, _, known)) => *known = known.max(most),
                            None => apart.push((family, other, most)),
                        }
                    }
                    families.push((family, vector));
                }
            }
            for (family, other, most) in apart {
                assert!(most > 0.0, "in {precision:?}, {family} and {other} are one family");
            }
        }
    }

    /// A head whose width is not a whole number of vectors is padded, which does not change the result.
    #[test]
    fn padding_puts_zeros_behind_every_run() {
        assert_eq!(pad(&[1.0, 2.0, 3.0, 4.0], [2, 3]), [1.0, 2.0, 0.0, 3.0, 4.0, 0.0]);
        assert_eq!(pad(&[1.0, 2.0], [2, 2]), [1.0, 2.0]);
    }
}
