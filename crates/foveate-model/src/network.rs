use foveate_core::{CHANNELS, Size};
use foveate_encode::Pooling;

use crate::ModelError;

/// A transformer as a value: the sizes and switches that an engine computes by. Families differ in nothing else;
/// [`parts`](crate::parts) reads the tensors. It embeds images, or texts if it has [words](Self::words).
///
/// `tokens = [prefix, patches]` or a text's words, then `norm(tokens)` if there is a [stem norm](Self::stem_norm), then
/// the blocks, then the final LayerNorm, then the [pooling](Self::pooling).
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Width of a token.
    pub hidden_size: usize,
    /// Transformer blocks.
    pub num_hidden_layers: usize,
    /// Attention heads; `hidden_size` is a multiple of it.
    pub num_attention_heads: usize,
    /// Width of the MLP: of its first layer's output, or if that is gated of each half.
    pub mlp_hidden: usize,
    /// The words of a text's tokens; `None` for images.
    pub words: Option<WordTable>,
    /// Side of a square patch in pixels; 0 for texts.
    pub patch_size: usize,
    /// True if the patch embedding has a bias.
    pub patch_bias: bool,
    /// True if a class token comes first.
    pub class_token: bool,
    /// Register tokens between the class token and the patches.
    pub num_register_tokens: usize,
    /// True if checkpoints have a token that replaces masked patches in training.
    pub mask_token: bool,
    /// Learned position embeddings, added to the patches and the class token.
    pub positions: Option<PositionTable>,
    /// Rotation of queries and keys by the patches' places, in every block.
    pub rotary: Option<Rotary>,
    /// True if a LayerNorm comes before the first block.
    pub stem_norm: bool,
    /// The layers of attention's input that have a bias. A missing one is zero.
    pub attention_bias: AttentionBias,
    /// True if each half of a block is multiplied by factors of its own.
    pub layer_scale: bool,
    /// Between the MLP's layers.
    pub activation: Activation,
    /// Epsilon of every LayerNorm.
    pub layer_norm_eps: f64,
    /// Attention of a learned probe to all tokens, which pools them for [`Pooling::Head`].
    pub probe: Option<ProbeShape>,
    /// The last layer of [`Pooling::Head`].
    pub projection: Option<Projection>,
    /// The model's own vector, as its reference library returns it.
    pub pooling: Pooling,
}

/// The table of a text's words, and what their tokens are for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WordTable {
    /// Rows of the table.
    pub vocabulary: usize,
    /// The most tokens of a text.
    pub context: usize,
    /// Factor of the table's rows.
    pub scale: f32,
    /// True if the positions are sines and cosines, else they are learned, `[context, hidden]`.
    pub sinusoids: bool,
    /// True if a token attends to itself and to the tokens before it alone, else to all of the text.
    pub causal: bool,
    /// The token that becomes the vector.
    pub pooled: PooledWord,
}

/// The library that makes a text tower's tokens of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextLibrary {
    /// `CLIPTokenizer` of `transformers`.
    Clip,
    /// `SiglipTokenizer` of `transformers`, or `Siglip2Tokenizer`, as the tokenizer's own config says.
    Siglip,
    /// `Tipsv2Tokenizer` of `transformers`.
    Tips,
    /// `SimpleTokenizer` of open_clip.
    OpenClip,
}

impl TextLibrary {
    /// The name in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clip => "clip",
            Self::Siglip => "siglip",
            Self::Tips => "tips",
            Self::OpenClip => "open_clip",
        }
    }
}

/// The token of a text whose final value the projection takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PooledWord {
    /// The first with this id.
    First(u32),
    /// The first of the largest id.
    Largest,
    /// The last.
    Last,
    /// The mean of all.
    Mean,
}

impl PooledWord {
    /// The index of the pooled token in `ids`; `None` for the mean. Without such an id it is the first token, as in the
    /// libraries.
    pub fn index(self, ids: &[u32]) -> Option<usize> {
        match self {
            Self::First(id) => Some(ids.iter().position(|&found| found == id).unwrap_or(0)),
            Self::Largest => {
                let largest = ids.iter().max();
                Some(ids.iter().position(|id| Some(id) == largest).unwrap_or(0))
            }
            Self::Last => Some(ids.len().saturating_sub(1)),
            Self::Mean => None,
        }
    }
}

/// The learned position embeddings of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PositionTable {
    /// The patches that they are for.
    pub grid: Grid,
    /// True if the first row belongs to the class token.
    pub class_row: bool,
    /// The way to another grid.
    pub interpolation: Interpolation,
}

impl PositionTable {
    /// The number of rows.
    pub const fn rows(&self) -> usize {
        self.grid.patches() + self.class_row as usize
    }
}

/// A library's way from the stored positions to those of another grid, all with `align_corners=False`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// Refused: the library does not interpolate.
    Refused,
    /// Bicubic with a = −0.75, not antialiased.
    Bicubic,
    /// Bicubic with a = −0.5, antialiased.
    BicubicAntialias,
    /// Bilinear, antialiased.
    BilinearAntialias,
}

/// Rotary position embeddings in two dimensions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rotary {
    /// Coordinates of patches from −1 to 1, whatever the grid; rows before columns (DINOv3).
    Relative {
        /// Ratio of the longest wavelength to the shortest.
        theta: f64,
    },
    /// Coordinates are indices; columns before rows, and pairs side by side (PE).
    Absolute {
        /// Ratio of the longest wavelength to the shortest.
        theta: f64,
        /// Index of the first row and column.
        first: usize,
    },
}

/// The layers of attention's input that have a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionBias {
    /// Queries.
    pub query: bool,
    /// Keys.
    pub key: bool,
    /// Values.
    pub value: bool,
}

impl AttentionBias {
    /// All or none.
    pub const fn all(has_bias: bool) -> Self {
        Self { query: has_bias, key: has_bias, value: has_bias }
    }
}

/// The function between the MLP's layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x · Φ(x)`, by the error function.
    Gelu,
    /// Its approximation by the hyperbolic tangent.
    GeluTanh,
    /// `x · σ(1.702 x)`.
    QuickGelu,
    /// `max(x, 0)`.
    Relu,
    /// `silu(gate) · up`: the first layer has twice the outputs, the gate first.
    GatedSilu,
}

impl Activation {
    /// The outputs of the first layer per unit of the second.
    pub const fn inputs(self) -> usize {
        match self {
            Self::GatedSilu => 2,
            _ => 1,
        }
    }

    /// The name, as configs have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu_pytorch_tanh",
            Self::QuickGelu => "quick_gelu",
            Self::Relu => "relu",
            Self::GatedSilu => "gated silu",
        }
    }
}

/// Attention pooling: `x = attention(probe, tokens)`, then `x + mlp(norm(x))`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeShape {
    /// Attention heads.
    pub heads: usize,
    /// Width of the MLP, whose activation is the blocks'.
    pub mlp_hidden: usize,
}

/// A linear layer from a pooled token to the vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Projection {
    /// Length of the vector.
    pub outputs: usize,
    /// True if it has a bias.
    pub has_bias: bool,
}

/// Patches of an image: rows by columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Rows of patches.
    pub height: usize,
    /// Columns of patches.
    pub width: usize,
}

impl Grid {
    /// Number of patches.
    pub const fn patches(self) -> usize {
        self.height * self.width
    }
}

/// A tensor of the model that a [`Network`] describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name, which is that of Hugging Face's `Dinov2Model` where that has such a tensor. The layout of a checkpoint
    /// says where it is.
    pub name: String,
    /// Its shape, slowest dimension first.
    pub shape: Vec<usize>,
    /// True if a checkpoint may lack the tensor, because no vector depends on it.
    pub optional: bool,
}

impl TensorSpec {
    /// The number of values.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns true if the tensor has no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Network {
    /// The grid of an image of size `input`.
    ///
    /// # Errors
    /// [`ModelError::InputSize`] unless both sides are non-zero multiples of the patch size, and
    /// [`ModelError::FixedSize`] if the positions are for another grid and cannot be interpolated.
    pub fn grid(&self, input: Size) -> Result<Grid, ModelError> {
        let patch = self.patch_size;
        let grid = Grid { height: input.height as usize / patch, width: input.width as usize / patch };
        let covered = (grid.height * patch, grid.width * patch);
        if input.is_empty() || covered != (input.height as usize, input.width as usize) {
            return Err(ModelError::InputSize { size: input, patch });
        }
        match self.positions {
            Some(table) if table.interpolation == Interpolation::Refused && table.grid != grid => {
                let only = Size::new((table.grid.width * patch) as u32, (table.grid.height * patch) as u32);
                Err(ModelError::FixedSize { size: input, only })
            }
            _ => Ok(grid),
        }
    }

    /// The number of tokens before the patches: the class token and the registers.
    pub const fn prefix_tokens(&self) -> usize {
        self.class_token as usize + self.num_register_tokens
    }

    /// The number of tokens of one image: class token, registers, patches.
    pub const fn tokens(&self, grid: Grid) -> usize {
        self.prefix_tokens() + grid.patches()
    }

    /// The number of leading ones of `tokens` tokens that a vector depends on behind the last block's attention.
    pub const fn tokens_read(&self, pooling: Pooling, tokens: usize) -> usize {
        match pooling {
            Pooling::Cls => 1,
            Pooling::Register => self.class_token as usize + 1,
            Pooling::Head if self.probe.is_none() => 1,
            Pooling::Mean | Pooling::ClsMean | Pooling::Head => tokens,
        }
    }

    /// The width of one attention head.
    pub const fn head_size(&self) -> usize {
        self.hidden_size / self.num_attention_heads
    }

    /// The length of a vector.
    ///
    /// # Errors
    /// [`ModelError::Pooling`] if the model has no such token or head.
    pub fn dim(&self, pooling: Pooling) -> Result<usize, ModelError> {
        let has_head = self.probe.is_some() || self.projection.is_some();
        let missing = match pooling {
            Pooling::Cls | Pooling::ClsMean if !self.class_token => "class token",
            Pooling::Register if self.num_register_tokens == 0 => "register token",
            Pooling::Head if !has_head => "head: neither attention pooling nor a projection",
            _ => "",
        };
        if !missing.is_empty() {
            return Err(ModelError::Pooling { pooling, missing, own: self.pooling });
        }
        Ok(match (pooling, self.projection) {
            (Pooling::Head, Some(projection)) => projection.outputs,
            (Pooling::ClsMean, _) => 2 * self.hidden_size,
            _ => self.hidden_size,
        })
    }

    /// Every tensor of the model, in the order of the forward pass.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let mut list = TensorList::default();
        self.embedding_tensors(&mut list);
        for layer in 0..self.num_hidden_layers {
            self.layer_tensors(&format!("encoder.layer.{layer}"), &mut list);
        }
        list.norm("layernorm", self.hidden_size);
        self.head_tensors(&mut list);
        list.0
    }

    /// The number of values in [`Self::tensors`].
    pub fn parameters(&self) -> usize {
        self.tensors().iter().map(TensorSpec::len).sum()
    }

    fn embedding_tensors(&self, list: &mut TensorList) {
        let hidden = self.hidden_size;
        let patch = self.patch_size;
        if let Some(words) = self.words {
            list.add("embeddings.word_embeddings", &[words.vocabulary, hidden]);
            if !words.sinusoids {
                list.add("embeddings.position_embeddings", &[words.context, hidden]);
            }
            return;
        }
        if self.class_token {
            list.add("embeddings.cls_token", &[1, 1, hidden]);
        }
        if self.mask_token {
            list.add_optional("embeddings.mask_token", &[1, hidden]);
        }
        if let Some(table) = self.positions {
            list.add("embeddings.position_embeddings", &[1, table.rows(), hidden]);
        }
        if self.num_register_tokens > 0 {
            list.add("embeddings.register_tokens", &[1, self.num_register_tokens, hidden]);
        }
        list.add("embeddings.patch_embeddings.projection.weight", &[hidden, CHANNELS, patch, patch]);
        if self.patch_bias {
            list.add("embeddings.patch_embeddings.projection.bias", &[hidden]);
        }
        if self.stem_norm {
            list.norm("embeddings.norm", hidden);
        }
    }

    fn layer_tensors(&self, layer: &str, list: &mut TensorList) {
        let hidden = self.hidden_size;
        let mlp = self.mlp_hidden;
        let AttentionBias { query, key, value } = self.attention_bias;
        list.norm(&format!("{layer}.norm1"), hidden);
        for (part, has_bias) in [("query", query), ("key", key), ("value", value)] {
            list.linear(&format!("{layer}.attention.attention.{part}"), hidden, hidden, has_bias);
        }
        list.linear(&format!("{layer}.attention.output.dense"), hidden, hidden, true);
        if self.layer_scale {
            list.add(&format!("{layer}.layer_scale1.lambda1"), &[hidden]);
        }
        list.norm(&format!("{layer}.norm2"), hidden);
        let (input, output) = mlp_names(self.activation);
        list.linear(&format!("{layer}.mlp.{input}"), hidden, self.activation.inputs() * mlp, true);
        list.linear(&format!("{layer}.mlp.{output}"), mlp, hidden, true);
        if self.layer_scale {
            list.add(&format!("{layer}.layer_scale2.lambda1"), &[hidden]);
        }
    }

    fn head_tensors(&self, list: &mut TensorList) {
        let hidden = self.hidden_size;
        if let Some(probe) = self.probe {
            list.add("head.probe", &[1, 1, hidden]);
            for part in ["query", "key", "value", "output"] {
                list.linear(&format!("head.attention.{part}"), hidden, hidden, true);
            }
            list.norm("head.norm", hidden);
            list.linear("head.mlp.fc1", hidden, probe.mlp_hidden, true);
            list.linear("head.mlp.fc2", probe.mlp_hidden, hidden, true);
        }
        if let Some(projection) = self.projection {
            list.linear("head.projection", hidden, projection.outputs, projection.has_bias);
        }
    }
}

/// The names of an MLP's layers.
pub(crate) const fn mlp_names(activation: Activation) -> (&'static str, &'static str) {
    match activation {
        Activation::GatedSilu => ("weights_in", "weights_out"),
        _ => ("fc1", "fc2"),
    }
}

#[derive(Default)]
struct TensorList(Vec<TensorSpec>);

impl TensorList {
    fn add(&mut self, name: &str, shape: &[usize]) {
        self.0.push(TensorSpec { name: name.to_owned(), shape: shape.to_vec(), optional: false });
    }

    fn add_optional(&mut self, name: &str, shape: &[usize]) {
        self.0.push(TensorSpec { name: name.to_owned(), shape: shape.to_vec(), optional: true });
    }

    fn linear(&mut self, name: &str, inputs: usize, outputs: usize, has_bias: bool) {
        self.add(&format!("{name}.weight"), &[outputs, inputs]);
        if has_bias {
            self.add(&format!("{name}.bias"), &[outputs]);
        }
    }

    fn norm(&mut self, name: &str, size: usize) {
        self.add(&format!("{name}.weight"), &[size]);
        self.add(&format!("{name}.bias"), &[size]);
    }
}
