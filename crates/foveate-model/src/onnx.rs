//! A checkpoint as an ONNX graph, in operators of the default domain only.

mod proto;

use std::borrow::Cow;

use foveate_core::CHANNELS;
use foveate_encode::{DType, Pooling};

use crate::parts::{Block, Embedding, Linear, Mlp, Norm, Parts, ProbeLayers, transposed};
use crate::{Activation, Model, ModelError};
use proto::{Attribute, OnnxElement, OnnxFile};

/// The first opset with GELU as one operator; ONNX Runtime has it since 1.17.
const OPSET: i64 = 20;
/// The version of the file format that belongs to this opset.
const IR_VERSION: i64 = 9;
/// Protobuf's limit on a message.
const MAX_BYTES: u64 = i32::MAX as u64;

impl Model {
    /// Returns the model and its weights as an ONNX file, for the input size of its recipe:
    ///
    /// - input `pixels`, u8 `[batch, height, width, 3]`: raw RGB samples, because normalization is folded into the
    ///   patch embedding; normalized f32 samples for a recipe that resizes in float;
    /// - outputs `[batch, hidden]` after the final LayerNorm, in `dtype`: `cls`, the class token, and `patch_mean`, the
    ///   mean of the patch tokens; or `register`, or `head`, the model's own vector. `pooling` selects them. For the
    ///   class token alone, the last block computes no other token.
    ///
    /// Position embeddings are interpolated beforehand. LayerScale and the attention's scale are folded into the
    /// weights, each value rounded once. The graph is opset 20 (2023) of the default domain. Attention is MatMul,
    /// Softmax, MatMul: fused attention operators belong to a vendor's domain or to opset 23, and were no faster on a
    /// CPU.
    ///
    /// In f16, the patch embedding, the final LayerNorm and the pooling compute in f32: folded weights are too small
    /// for f16, and a mean of hundreds of values too long.
    ///
    /// # Errors
    /// [`ModelError::Onnx`] for bf16, which ONNX Runtime does not compute on CPUs, and for a model beyond the file's
    /// limit of two gigabytes; the errors of reading the tensors otherwise.
    pub fn to_onnx(&self, dtype: DType, pooling: Pooling) -> Result<Vec<u8>, ModelError> {
        let element = element(dtype)?;
        self.network.dim(pooling)?;
        let capacity = self.onnx_bytes(element)?;
        let metadata = [("model", self.name.as_str()), ("weights", self.weights.hash())];
        let file = OnnxFile::new(OPSET, IR_VERSION, &metadata, capacity);
        let mut graph = OnnxGraph { model: self, parts: Parts::new(self)?, file, element, pooling };
        graph.write()?;
        Ok(graph.file.finish())
    }

    /// Estimates the file's size in bytes: the tensors, plus names and nodes.
    fn onnx_bytes(&self, element: OnnxElement) -> Result<usize, ModelError> {
        const PER_LAYER: u64 = 16 << 10;
        let of_weights = self.network.parameters() as u64 * if element == OnnxElement::F16 { 2 } else { 4 };
        // The positions are those of the input, not those of the checkpoint.
        let positions = self.network.tokens(self.network.grid(self.preprocess.crop)?) * self.network.hidden_size * 4;
        let bytes = of_weights + positions as u64 + PER_LAYER * (1 + self.network.num_hidden_layers as u64);
        if bytes > MAX_BYTES {
            let remedy = if element == OnnxElement::F16 { "" } else { "export it in f16, or " };
            return Err(ModelError::Onnx(format!(
                "{} would take {:.1} GB, and a file can hold 2.1: {remedy}use an encoder that reads checkpoints",
                self.name,
                bytes as f64 / 1e9
            )));
        }
        Ok(bytes as usize)
    }
}

fn element(dtype: DType) -> Result<OnnxElement, ModelError> {
    match dtype {
        DType::F32 => Ok(OnnxElement::F32),
        DType::F16 => Ok(OnnxElement::F16),
        other => Err(ModelError::Onnx(format!("{} is not written; f32 and f16 are", other.name()))),
    }
}

/// The graph under construction. A value has the name of the node that computes it.
struct OnnxGraph<'a> {
    model: &'a Model,
    parts: Parts<'a>,
    file: OnnxFile,
    element: OnnxElement,
    pooling: Pooling,
}

impl OnnxGraph<'_> {
    fn write(&mut self) -> Result<(), ModelError> {
        let crop = self.model.preprocess.crop;
        let element = if self.model.preprocess.is_float() { OnnxElement::F32 } else { OnnxElement::U8 };
        self.file.input("pixels", element, &[crop.height as usize, crop.width as usize, CHANNELS]);
        let mut tokens = self.tokens()?;
        self.rotary();
        for layer in 0..self.model.network.num_hidden_layers {
            tokens = self.block(layer, &tokens)?;
        }
        self.vectors(&tokens)
    }

    fn node(&mut self, operator: &str, name: String, inputs: &[&str], attributes: &[(&str, Attribute<'_>)]) -> String {
        self.file.node(operator, &name, inputs, attributes);
        name
    }

    fn floats(&mut self, name: String, shape: &[usize], element: OnnxElement, values: &[f32]) -> String {
        self.file.floats(&name, shape, element, values);
        name
    }

    fn integers(&mut self, name: String, values: &[i64]) -> String {
        self.file.integers(&name, &[values.len()], values);
        name
    }

    fn reshape(&mut self, name: &str, input: &str, shape: &[i64]) -> String {
        let shape = self.integers(format!("{name}.shape"), shape);
        self.node("Reshape", name.to_owned(), &[input, &shape], &[])
    }

    fn transpose(&mut self, name: &str, input: &str, order: &[i64]) -> String {
        self.node("Transpose", name.to_owned(), &[input], &[("perm", Attribute::Ints(order))])
    }

    fn cast(&mut self, name: &str, input: &str, element: OnnxElement) -> String {
        self.node("Cast", name.to_owned(), &[input], &[("to", Attribute::Int(element as i64))])
    }

    /// Adds a slice: the tokens `range` of `input`.
    fn slice(&mut self, name: &str, input: &str, range: std::ops::Range<usize>) -> String {
        let first = self.integers(format!("{name}.first"), &[range.start as i64]);
        let end = self.integers(format!("{name}.end"), &[range.end as i64]);
        let axis = self.integers(format!("{name}.axis"), &[1]);
        self.node("Slice", name.to_owned(), &[input, &first, &end, &axis], &[])
    }

    fn product(&mut self, name: &str, input: &str, linear: &Linear<'_>, element: OnnxElement) -> String {
        let outputs = linear.bias.len();
        let weight = transposed(&linear.weight, linear.inputs);
        let weight = self.floats(format!("{name}.weight"), &[linear.inputs, outputs], element, &weight);
        self.node("MatMul", format!("{name}.product"), &[input, &weight], &[])
    }

    fn linear(&mut self, name: &str, input: &str, linear: &Linear<'_>) -> String {
        let product = self.product(name, input, linear, self.element);
        let bias = self.floats(format!("{name}.bias"), &[linear.bias.len()], self.element, &linear.bias);
        self.node("Add", name.to_owned(), &[&product, &bias], &[])
    }

    fn norm(&mut self, name: &str, input: &str, norm: &Norm<'_>, element: OnnxElement) -> String {
        let scale = self.floats(format!("{name}.scale"), &[norm.scale.len()], element, &norm.scale);
        let shift = self.floats(format!("{name}.shift"), &[norm.shift.len()], element, &norm.shift);
        let epsilon = Attribute::Float(self.model.network.layer_norm_eps as f32);
        self.node("LayerNormalization", name.to_owned(), &[input, &scale, &shift], &[("epsilon", epsilon)])
    }

    /// Adds cosines and sines of all tokens' angles, if positions are rotations.
    fn rotary(&mut self) {
        let Some(table) = self.parts.rotary() else { return };
        let table = table.behind(self.model.network.prefix_tokens());
        let shape = [self.parts.tokens(), table.half];
        self.floats("rotary.cos".to_owned(), &shape, self.element, &table.cos);
        self.floats("rotary.sin".to_owned(), &shape, self.element, &table.sin);
        self.integers("rotary.axis".to_owned(), &[-1]);
        for (name, at) in [("rotary.0", 0), ("rotary.half", table.half), ("rotary.head", 2 * table.half)] {
            self.integers(name.to_owned(), &[at as i64]);
        }
    }

    /// Turns `[n, heads, tokens, head]`.
    fn turn(&mut self, name: &str, input: &str) -> String {
        let axis = "rotary.axis";
        let low = self.node("Slice", format!("{name}.low"), &[input, "rotary.0", "rotary.half", axis], &[]);
        let high = self.node("Slice", format!("{name}.high"), &[input, "rotary.half", "rotary.head", axis], &[]);
        let low_cos = self.node("Mul", format!("{name}.low.cos"), &[&low, "rotary.cos"], &[]);
        let high_sin = self.node("Mul", format!("{name}.high.sin"), &[&high, "rotary.sin"], &[]);
        let high_cos = self.node("Mul", format!("{name}.high.cos"), &[&high, "rotary.cos"], &[]);
        let low_sin = self.node("Mul", format!("{name}.low.sin"), &[&low, "rotary.sin"], &[]);
        let low = self.node("Sub", format!("{name}.low.turned"), &[&low_cos, &high_sin], &[]);
        let high = self.node("Add", format!("{name}.high.turned"), &[&high_cos, &low_sin], &[]);
        self.node("Concat", format!("{name}.turned"), &[&low, &high], &[("axis", Attribute::Int(-1))])
    }

    /// Adds the embedding: images to tokens, `[batch, tokens, hidden]`. Patches are cut out by moving rows of bytes, so
    /// that their embedding is one product. The class token and the registers do not depend on the image, so they are
    /// constants, added to zeros in front of the patches.
    fn tokens(&mut self) -> Result<String, ModelError> {
        let Embedding { patch, mut base, norm } = self.parts.embedding()?;
        let grid = self.parts.grid();
        let network = &self.model.network;
        let side = network.patch_size as i64;
        let hidden = network.hidden_size;
        let prefix = network.prefix_tokens();
        let rows = grid.height as i64;
        let columns = grid.width as i64;
        let samples = side * CHANNELS as i64;
        for token in base[prefix * hidden..].chunks_exact_mut(hidden) {
            token.iter_mut().zip(patch.bias.iter()).for_each(|(value, bias)| *value += bias);
        }

        let pixels = self.samples();
        let strips = self.reshape("patches.strips", &pixels, &[0, rows, side, columns, samples]);
        let patches = self.transpose("patches.pixels", &strips, &[0, 1, 3, 2, 4]);
        let patches = self.reshape("patches.flat", &patches, &[0, rows * columns, side * samples]);
        let patches = self.product("patches", &patches, &patch, OnnxElement::F32);
        let padded = if prefix == 0 {
            patches
        } else {
            let pads = self.integers("tokens.pads".to_owned(), &[0, prefix as i64, 0, 0, 0, 0]);
            self.node("Pad", "tokens.padded".to_owned(), &[&patches, &pads], &[])
        };
        let base = self.floats("tokens.base".to_owned(), &[self.parts.tokens(), hidden], OnnxElement::F32, &base);
        let mut tokens = self.node("Add", "tokens".to_owned(), &[&padded, &base], &[]);
        if let Some(norm) = norm {
            tokens = self.norm("tokens.norm", &tokens, &norm, OnnxElement::F32);
        }
        Ok(match self.element {
            OnnxElement::F32 => tokens,
            element => self.cast("tokens.cast", &tokens, element),
        })
    }

    /// Returns the images' samples, 0 to 255, in f32. Those of a graph's f32 input are normalized, as everywhere.
    fn samples(&mut self) -> String {
        let preprocess = &self.model.preprocess;
        if !preprocess.is_float() {
            return self.cast("pixels.f32", "pixels", OnnxElement::F32);
        }
        let std = preprocess.std.map(|std| std * 255.0);
        let mean = preprocess.mean.map(|mean| mean * 255.0);
        let std = self.floats("pixels.std".to_owned(), &[CHANNELS], OnnxElement::F32, &std);
        let mean = self.floats("pixels.mean".to_owned(), &[CHANNELS], OnnxElement::F32, &mean);
        let scaled = self.node("Mul", "pixels.scaled".to_owned(), &["pixels", &std], &[]);
        self.node("Add", "pixels.f32".to_owned(), &[&scaled, &mean], &[])
    }

    fn block(&mut self, layer: usize, tokens: &str) -> Result<String, ModelError> {
        let mut block = self.parts.block(layer)?;
        let name = format!("block.{layer}");
        let seen = self.norm(&format!("{name}.norm1"), tokens, &block.norm1, self.element);
        let is_last = layer + 1 == self.model.network.num_hidden_layers;
        let is_class_alone = self.model.network.tokens_read(self.pooling, self.parts.tokens()) == 1;
        let (asking, tokens) = if is_last && is_class_alone && self.model.network.rotary.is_none() {
            // No output depends on the last block's other tokens.
            (
                self.slice(&format!("{name}.norm1.class"), &seen, 0..1),
                self.slice(&format!("{name}.class"), tokens, 0..1),
            )
        } else {
            (seen.clone(), tokens.to_owned())
        };
        let attended = self.attention(&format!("{name}.attention"), &asking, &seen, &mut block);
        let output = take(&mut block.output).scaled_by(block.scale1.as_deref());
        let output = self.linear(&format!("{name}.attention.output"), &attended, &output);
        let tokens = self.node("Add", format!("{name}.attended"), &[&output, &tokens], &[]);

        let normed = self.norm(&format!("{name}.norm2"), &tokens, &block.norm2, self.element);
        let hidden = self.hidden(&format!("{name}.mlp"), &normed, &block.mlp);
        let output = take(&mut block.mlp.output).scaled_by(block.scale2.as_deref());
        let output = self.linear(&format!("{name}.mlp.output"), &hidden, &output);
        Ok(self.node("Add", name, &[&output, &tokens], &[]))
    }

    /// Adds attention of the tokens `asking` to the tokens `seen`, heads side by side.
    fn attention(&mut self, name: &str, asking: &str, seen: &str, block: &mut Block<'_>) -> String {
        let network = &self.model.network;
        let hidden = network.hidden_size;
        let heads = network.num_attention_heads as i64;
        let width = network.head_size();
        let scale = (1.0 / (width as f64).sqrt()) as f32;
        let query = take(&mut block.query).scaled(&vec![scale; hidden]);
        let parts = [
            ("query", &query, asking, [0, 2, 1, 3]),
            ("key", &block.key, seen, [0, 2, 3, 1]),
            ("value", &block.value, seen, [0, 2, 1, 3]),
        ];
        let is_rotary = self.model.network.rotary.is_some();
        let [query, key, value] = parts.map(|(part, linear, tokens, order)| {
            let all = self.linear(&format!("{name}.{part}"), tokens, linear);
            let name = format!("{name}.{part}");
            let split = self.reshape(&format!("{name}.split"), &all, &[0, 0, heads, width as i64]);
            if !is_rotary || part == "value" {
                return self.transpose(&format!("{name}.heads"), &split, &order);
            }
            let rows = self.transpose(&format!("{name}.rows"), &split, &[0, 2, 1, 3]);
            let turned = self.turn(&name, &rows);
            if part == "query" { turned } else { self.transpose(&format!("{name}.heads"), &turned, &[0, 1, 3, 2]) }
        });
        self.attend(name, &query, &key, &value, hidden)
    }

    /// Adds attention: queries and values `[n, heads, tokens, width]`, keys with the last two exchanged.
    fn attend(&mut self, name: &str, query: &str, key: &str, value: &str, hidden: usize) -> String {
        let scores = self.node("MatMul", format!("{name}.scores"), &[query, key], &[]);
        let weights = self.node("Softmax", format!("{name}.weights"), &[&scores], &[("axis", Attribute::Int(-1))]);
        let heads = self.node("MatMul", format!("{name}.heads"), &[&weights, value], &[]);
        let heads = self.transpose(&format!("{name}.merged"), &heads, &[0, 2, 1, 3]);
        self.reshape(name, &heads, &[0, 0, hidden as i64])
    }

    /// Adds the feed-forward half up to its activations.
    fn hidden(&mut self, name: &str, input: &str, mlp: &Mlp<'_>) -> String {
        if mlp.activation != Activation::GatedSilu {
            let hidden = self.linear(&format!("{name}.input"), input, &mlp.input);
            let approximate = [("approximate", Attribute::Text("tanh"))];
            return match mlp.activation {
                Activation::QuickGelu => {
                    let slope = self.floats(format!("{name}.slope"), &[], self.element, &[1.702]);
                    let steep = self.node("Mul", format!("{name}.steep"), &[&hidden, &slope], &[]);
                    let share = self.node("Sigmoid", format!("{name}.sigmoid"), &[&steep], &[]);
                    self.node("Mul", format!("{name}.gelu"), &[&hidden, &share], &[])
                }
                Activation::Relu => self.node("Relu", format!("{name}.relu"), &[&hidden], &[]),
                Activation::GeluTanh => self.node("Gelu", format!("{name}.gelu"), &[&hidden], &approximate),
                _ => self.node("Gelu", format!("{name}.gelu"), &[&hidden], &[]),
            };
        }
        let (gate, up) = halves(&mlp.input);
        let gate = self.linear(&format!("{name}.gate"), input, &gate);
        let up = self.linear(&format!("{name}.up"), input, &up);
        let open = self.node("Sigmoid", format!("{name}.sigmoid"), &[&gate], &[]);
        let gate = self.node("Mul", format!("{name}.silu"), &[&gate, &open], &[]);
        self.node("Mul", format!("{name}.gated"), &[&gate, &up], &[])
    }

    fn vectors(&mut self, tokens: &str) -> Result<(), ModelError> {
        let tokens = match self.element {
            OnnxElement::F32 => tokens.to_owned(),
            _ => self.cast("tokens.last", tokens, OnnxElement::F32),
        };
        let normed = self.norm("norm", &tokens, &self.parts.final_norm()?, OnnxElement::F32);
        if matches!(self.pooling, Pooling::Cls | Pooling::ClsMean) {
            self.token("cls", &normed, 0);
        }
        if self.pooling.reads_patches() {
            let prefix = self.model.network.prefix_tokens();
            let patches = self.slice("patch_mean.patches", &normed, prefix..self.parts.tokens());
            let axis = self.integers("patch_mean.axis".to_owned(), &[1]);
            self.vector("patch_mean", "ReduceMean", &[&patches, &axis], &[("keepdims", Attribute::Int(0))]);
        }
        match self.pooling {
            Pooling::Register => self.token("register", &normed, i64::from(self.model.network.class_token)),
            Pooling::Head => self.head(&normed)?,
            _ => {}
        }
        Ok(())
    }

    /// Adds one token as an output.
    fn token(&mut self, name: &str, normed: &str, at: i64) {
        let index = format!("{name}.index");
        self.file.integers(&index, &[], &[at]);
        self.vector(name, "Gather", &[normed, &index], &[("axis", Attribute::Int(1))]);
    }

    /// Adds the model's own vector. All of it is computed in f32.
    fn head(&mut self, normed: &str) -> Result<(), ModelError> {
        let element = std::mem::replace(&mut self.element, OnnxElement::F32);
        let head = self.parts.head(self.pooling)?;
        let pooled = match &head.probe {
            Some(probe) => self.probe(probe, normed),
            None => self.slice("head.class", normed, 0..1),
        };
        let pooled = match &head.projection {
            Some(projection) => self.linear("head.projection", &pooled, projection),
            None => pooled,
        };
        self.element = element;
        self.file.integers("head.index", &[], &[0]);
        self.vector("head", "Gather", &[&pooled, "head.index"], &[("axis", Attribute::Int(1))]);
        Ok(())
    }

    /// Adds attention pooling: `[n, tokens, hidden]` to `[n, 1, hidden]`.
    fn probe(&mut self, probe: &ProbeLayers<'_>, normed: &str) -> String {
        let hidden = probe.query.len();
        let width = hidden / probe.heads;
        let scale = (1.0 / (width as f64).sqrt()) as f32;
        let query: Vec<f32> = probe.query.iter().map(|value| value * scale).collect();
        let query = self.floats("probe.query".to_owned(), &[1, probe.heads, 1, width], self.element, &query);
        let parts = [("key", &probe.key, [0, 2, 3, 1]), ("value", &probe.value, [0, 2, 1, 3])];
        let [key, value] = parts.map(|(part, linear, order)| {
            let all = self.linear(&format!("probe.{part}"), normed, linear);
            let shape = [0, 0, probe.heads as i64, width as i64];
            let split = self.reshape(&format!("probe.{part}.split"), &all, &shape);
            self.transpose(&format!("probe.{part}.heads"), &split, &order)
        });
        let attended = self.attend("probe.attention", &query, &key, &value, hidden);
        let attended = self.linear("probe.output", &attended, &probe.output);
        let seen = self.norm("probe.norm", &attended, &probe.norm, self.element);
        let wide = self.hidden("probe.mlp", &seen, &probe.mlp);
        let fed = self.linear("probe.mlp.output", &wide, &probe.mlp.output);
        self.node("Add", "probe".to_owned(), &[&fed, &attended], &[])
    }

    /// Adds an output of the graph, which `operator` computes in f32.
    fn vector(&mut self, name: &str, operator: &str, inputs: &[&str], attributes: &[(&str, Attribute<'_>)]) {
        if self.element == OnnxElement::F32 {
            self.file.node(operator, name, inputs, attributes);
        } else {
            let exact = self.node(operator, format!("{name}.f32"), inputs, attributes);
            self.cast(name, &exact, self.element);
        }
        let len = match (name, self.model.network.projection) {
            ("head", Some(projection)) => projection.outputs,
            _ => self.model.network.hidden_size,
        };
        self.file.output(name, self.element, &[len]);
    }
}

/// Takes a layer to be changed, without copying its weights.
fn take<'a>(linear: &mut Linear<'a>) -> Linear<'a> {
    let empty = Linear { weight: Cow::Borrowed(&[]), bias: Cow::Borrowed(&[]), inputs: linear.inputs };
    std::mem::replace(linear, empty)
}

/// Returns the first and the second half of a layer's outputs.
fn halves<'a>(linear: &'a Linear<'_>) -> (Linear<'a>, Linear<'a>) {
    let (first, second) = linear.weight.split_at(linear.weight.len() / 2);
    let (first_bias, second_bias) = linear.bias.split_at(linear.bias.len() / 2);
    let half =
        |weight: &'a [f32], bias: &'a [f32]| Linear { weight: weight.into(), bias: bias.into(), inputs: linear.inputs };
    (half(first, first_bias), half(second, second_bias))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_transposed() {
        let outputs = 37;
        let inputs = 65;
        let weight: Vec<f32> = (0..outputs * inputs).map(|i| i as f32).collect();
        let result = transposed(&weight, inputs);
        for (output, input) in [(0, 0), (36, 64), (0, 64), (36, 0), (31, 32), (32, 31)] {
            assert_eq!(result[input * outputs + output], weight[output * inputs + input]);
        }
        assert_eq!(transposed(&result, outputs), weight);
    }

    #[test]
    fn what_a_file_cannot_hold_is_refused_with_a_remedy() {
        let giant = Model::seeded("dinov2-giant").unwrap();
        let error = giant.to_onnx(DType::F32, Pooling::Cls).unwrap_err().to_string();
        assert!(error.contains("would take 4.5 GB, and a file can hold 2.1: export it in f16, or use"), "{error}");
        let error = giant.to_onnx(DType::F16, Pooling::Cls).unwrap_err().to_string();
        assert!(error.contains("would take 2.3 GB, and a file can hold 2.1: use an encoder"), "{error}");
        let error = giant.to_onnx(DType::Bf16, Pooling::Cls).unwrap_err().to_string();
        assert!(error.contains("bf16 is not written"), "{error}");
    }
}
