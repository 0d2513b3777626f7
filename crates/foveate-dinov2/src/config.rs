use std::path::Path;

use foveate_core::{CHANNELS, Size};
use serde_json::{Map, Value};

use crate::ModelError;
use crate::keys::Keys;

/// Architecture of a DINOv2 model, from config.json.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Width of a token.
    pub hidden_size: usize,
    /// Transformer blocks.
    pub num_hidden_layers: usize,
    /// Attention heads; `hidden_size` is a multiple of it.
    pub num_attention_heads: usize,
    /// Width of the MLP: of `fc1`'s output, or with SwiGLU of each half of `weights_in`'s output.
    pub mlp_hidden: usize,
    /// Side of a square patch in pixels.
    pub patch_size: usize,
    /// Side of the image that the stored position embeddings are for.
    pub image_size: usize,
    /// Register tokens after the class token (0 for plain DINOv2).
    pub num_register_tokens: usize,
    /// True if this is the `dinov2_with_registers` family, which interpolates positions with antialiasing.
    pub with_registers: bool,
    /// SwiGLU feed-forward instead of GELU MLP.
    pub use_swiglu_ffn: bool,
    /// True if query, key and value have a bias.
    pub qkv_bias: bool,
    /// Epsilon of every LayerNorm.
    pub layer_norm_eps: f64,
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

/// A tensor of the model that a [`Config`] describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name in the checkpoint (Hugging Face `Dinov2Model` naming).
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

impl Config {
    /// Parses a config.json with `model_type` `dinov2` or `dinov2_with_registers`. `path` is for messages.
    ///
    /// Absent keys take the defaults of `transformers`' `Dinov2Config` and `Dinov2WithRegistersConfig` (5.23), which
    /// agree except for the patch size.
    ///
    /// # Errors
    /// [`ModelError::Malformed`], naming the key, for anything that is not such a config. This includes activations
    /// other than the exact GELU, and sizes beyond any model's.
    pub fn from_json(json: &[u8], path: &Path) -> Result<Self, ModelError> {
        Self::from_keys(&Keys::parse(json, path)?)
    }

    /// Like [`Self::from_json`], from keys that are already parsed.
    pub(crate) fn from_map(map: Map<String, Value>, path: &Path) -> Result<Self, ModelError> {
        Self::from_keys(&Keys::new(map, path))
    }

    fn from_keys(keys: &Keys<'_>) -> Result<Self, ModelError> {
        let with_registers = with_registers(keys)?;
        check_fixed_choices(keys)?;
        let hidden_size = keys.integer("hidden_size", Some(768), 1..=1 << 16)?;
        let num_attention_heads = keys.integer("num_attention_heads", Some(12), 1..=1 << 16)?;
        if hidden_size % num_attention_heads != 0 {
            let problem = format!("is {num_attention_heads}, which does not divide 'hidden_size' {hidden_size}");
            return Err(keys.error("num_attention_heads", problem));
        }
        let use_swiglu_ffn = keys.flag("use_swiglu_ffn", Some(false))?;
        let config = Self {
            hidden_size,
            num_hidden_layers: keys.integer("num_hidden_layers", Some(12), 1..=4096)?,
            num_attention_heads,
            mlp_hidden: mlp_hidden(keys, hidden_size, use_swiglu_ffn)?,
            patch_size: square_side(keys, "patch_size", if with_registers { 16 } else { 14 })?,
            image_size: square_side(keys, "image_size", 224)?,
            num_register_tokens: if with_registers {
                keys.integer("num_register_tokens", Some(4), 0..=1 << 12)?
            } else {
                0
            },
            with_registers,
            use_swiglu_ffn,
            qkv_bias: keys.flag("qkv_bias", Some(true))?,
            layer_norm_eps: keys.number("layer_norm_eps", Some(1e-6), 0.0..=1.0)?,
        };
        if config.image_size < config.patch_size {
            return Err(keys.error("image_size", "is smaller than 'patch_size'"));
        }
        Ok(config)
    }

    /// The grid of the stored position embeddings: `image_size` over `patch_size`, rounded down, each way.
    pub const fn stored_grid(&self) -> Grid {
        let side = self.image_size / self.patch_size;
        Grid { height: side, width: side }
    }

    /// The grid of an image of size `input`.
    ///
    /// # Errors
    /// [`ModelError::InputSize`] unless both sides are non-zero multiples of the patch size.
    pub fn grid(&self, input: Size) -> Result<Grid, ModelError> {
        let grid =
            Grid { height: input.height as usize / self.patch_size, width: input.width as usize / self.patch_size };
        let covered = (grid.height * self.patch_size, grid.width * self.patch_size);
        if input.is_empty() || covered != (input.height as usize, input.width as usize) {
            return Err(ModelError::InputSize { size: input, patch: self.patch_size });
        }
        Ok(grid)
    }

    /// The number of tokens before the patches: the class token and the registers.
    pub const fn prefix_tokens(&self) -> usize {
        1 + self.num_register_tokens
    }

    /// The number of tokens of one image: class token, registers, patches.
    pub const fn tokens(&self, grid: Grid) -> usize {
        self.prefix_tokens() + grid.patches()
    }

    /// The width of one attention head.
    pub const fn head_size(&self) -> usize {
        self.hidden_size / self.num_attention_heads
    }

    /// Every tensor of the model, in the order of the forward pass.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let mut list = TensorList::default();
        self.embedding_tensors(&mut list);
        for layer in 0..self.num_hidden_layers {
            self.layer_tensors(&format!("encoder.layer.{layer}"), &mut list);
        }
        list.norm("layernorm", self.hidden_size);
        list.0
    }

    /// The number of values in [`Self::tensors`].
    pub fn parameters(&self) -> usize {
        self.tensors().iter().map(TensorSpec::len).sum()
    }

    fn embedding_tensors(&self, list: &mut TensorList) {
        let hidden = self.hidden_size;
        let patch = self.patch_size;
        list.add("embeddings.cls_token", &[1, 1, hidden]);
        // Replaces masked patches in training only.
        list.add_optional("embeddings.mask_token", &[1, hidden]);
        list.add("embeddings.position_embeddings", &[1, 1 + self.stored_grid().patches(), hidden]);
        match self.num_register_tokens {
            0 if self.with_registers => list.add_optional("embeddings.register_tokens", &[1, 0, hidden]),
            0 => {}
            registers => list.add("embeddings.register_tokens", &[1, registers, hidden]),
        }
        list.add("embeddings.patch_embeddings.projection.weight", &[hidden, CHANNELS, patch, patch]);
        list.add("embeddings.patch_embeddings.projection.bias", &[hidden]);
    }

    fn layer_tensors(&self, layer: &str, list: &mut TensorList) {
        let hidden = self.hidden_size;
        let mlp = self.mlp_hidden;
        list.norm(&format!("{layer}.norm1"), hidden);
        for part in ["query", "key", "value"] {
            let name = format!("{layer}.attention.attention.{part}");
            list.add(&format!("{name}.weight"), &[hidden, hidden]);
            if self.qkv_bias {
                list.add(&format!("{name}.bias"), &[hidden]);
            }
        }
        list.linear(&format!("{layer}.attention.output.dense"), hidden, hidden);
        list.add(&format!("{layer}.layer_scale1.lambda1"), &[hidden]);
        list.norm(&format!("{layer}.norm2"), hidden);
        if self.use_swiglu_ffn {
            list.linear(&format!("{layer}.mlp.weights_in"), hidden, 2 * mlp);
            list.linear(&format!("{layer}.mlp.weights_out"), mlp, hidden);
        } else {
            list.linear(&format!("{layer}.mlp.fc1"), hidden, mlp);
            list.linear(&format!("{layer}.mlp.fc2"), mlp, hidden);
        }
        list.add(&format!("{layer}.layer_scale2.lambda1"), &[hidden]);
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

    fn linear(&mut self, name: &str, inputs: usize, outputs: usize) {
        self.add(&format!("{name}.weight"), &[outputs, inputs]);
        self.add(&format!("{name}.bias"), &[outputs]);
    }

    fn norm(&mut self, name: &str, size: usize) {
        self.add(&format!("{name}.weight"), &[size]);
        self.add(&format!("{name}.bias"), &[size]);
    }
}

fn with_registers(keys: &Keys<'_>) -> Result<bool, ModelError> {
    match keys.text("model_type")? {
        Some("dinov2") => Ok(false),
        Some("dinov2_with_registers") => Ok(true),
        Some(other) => {
            Err(keys.error("model_type", format!("is '{other}'; only dinov2 and dinov2_with_registers are supported")))
        }
        None => Err(keys.error("model_type", "is missing; it must be dinov2 or dinov2_with_registers")),
    }
}

/// Refuses options of the config class that no engine of ours computes.
fn check_fixed_choices(keys: &Keys<'_>) -> Result<(), ModelError> {
    match keys.text("hidden_act")? {
        None | Some("gelu") => {}
        Some(other) => {
            return Err(keys.error("hidden_act", format!("is '{other}'; only the exact 'gelu' is supported")));
        }
    }
    match keys.integer("num_channels", Some(CHANNELS), 1..=1 << 16)? {
        CHANNELS => Ok(()),
        other => Err(keys.error("num_channels", format!("is {other}; only RGB (3) is supported"))),
    }
}

/// `int(hidden_size * mlp_ratio)`; SwiGLU keeps two thirds of it, rounded up to a multiple of 8.
fn mlp_hidden(keys: &Keys<'_>, hidden_size: usize, swiglu: bool) -> Result<usize, ModelError> {
    let ratio = keys.number("mlp_ratio", Some(4.0), 0.0..=64.0)?;
    let full = (hidden_size as f64 * ratio) as usize;
    let hidden = if swiglu { ((full as f64 * 2.0 / 3.0) as usize).next_multiple_of(8) } else { full };
    if hidden == 0 {
        return Err(keys.error("mlp_ratio", format!("is {ratio}, which leaves the MLP empty")));
    }
    Ok(hidden)
}

/// Reads a side in pixels, given as one number or as two equal ones.
fn square_side(keys: &Keys<'_>, key: &str, default: usize) -> Result<usize, ModelError> {
    const RANGE: std::ops::RangeInclusive<usize> = 1..=1 << 14;
    match keys.get(key) {
        Some(Value::Array(sides)) => match sides.as_slice() {
            [height, width] if height == width => keys.to_integer(key, height, RANGE),
            _ => Err(keys.error(key, "is not one number or two equal ones; only square is supported")),
        },
        _ => keys.integer(key, Some(default), RANGE),
    }
}
