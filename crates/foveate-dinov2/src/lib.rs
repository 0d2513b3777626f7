//! DINOv2 without an engine: config, weights, preprocessing recipe, position embeddings. What any engine (candle,
//! libtorch) needs to compute the model's vectors, and nothing of how it computes them.

use std::borrow::Cow;

use foveate_core::Size;

/// A model ready to be given to an engine.
pub struct Model {
    /// What the user asked for (`facebook/dinov2-small`, a folder, `seeded:dinov2-small`).
    pub name: String,
    /// Architecture.
    pub config: Config,
    /// Preprocessing recipe.
    pub preprocess: Preprocess,
    /// The tensors.
    pub weights: Box<dyn Weights>,
}

/// Named f32 tensors of a checkpoint, read when asked for.
pub trait Weights: Send + Sync {
    /// The tensor called `name` (Hugging Face `Dinov2Model` naming), row-major, which must have exactly `shape`.
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Cow<'_, [f32]>, ModelError>;

    /// The shape of `name` in the checkpoint, if it is there.
    fn shape(&self, name: &str) -> Option<Vec<usize>>;

    /// SHA-256 that identifies the weights, lower-case hex.
    fn hash(&self) -> &str;

    /// Whether the weights were generated, so that the vectors mean nothing.
    fn is_seeded(&self) -> bool;
}

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
    /// Whether this is the `dinov2_with_registers` family, which interpolates positions with antialiasing.
    pub with_registers: bool,
    /// SwiGLU feed-forward instead of GELU MLP.
    pub use_swiglu_ffn: bool,
    /// Whether query, key and value have a bias.
    pub qkv_bias: bool,
    /// Epsilon of every LayerNorm.
    pub layer_norm_eps: f64,
}

/// Preprocessing recipe, from preprocessor_config.json.
#[derive(Clone, Debug, PartialEq)]
pub struct Preprocess {
    /// Shorter side after resizing; `None` when the file asks for no resize of that kind.
    pub shortest_edge: Option<u32>,
    /// Pillow's number for the filter (0 nearest, 1 lanczos, 2 bilinear, 3 bicubic, 4 box, 5 hamming).
    pub resample: u8,
    /// Size cut from the centre, which is the model's input size.
    pub crop: Size,
    /// Mean of each channel, of samples scaled to 0..=1.
    pub mean: [f32; 3],
    /// Standard deviation of each channel, of samples scaled to 0..=1.
    pub std: [f32; 3],
}

/// Why a model could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A tensor is absent.
    #[error("checkpoint has no tensor '{0}'")]
    MissingTensor(String),
}
