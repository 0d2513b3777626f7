//! The sizes of a model's forward.

use foveate_core::{CHANNELS, SampleType};
use foveate_encode::{EncodeError, EncoderOptions, Pooling};
use foveate_model::parts::Parts;
use foveate_model::{Activation, Network};

/// The largest second and third dimension of a kernel's grid, which count images.
const MOST_IMAGES: usize = 65_535;
/// The rows of the patches' product are padded to a multiple of this many columns, so that the matrix units read whole
/// tiles.
const PATCH_STEP: usize = 16;
/// The rows of all other arrays likewise, so that a thread loads 16 bytes of every element type at once.
const ROW_STEP: usize = 8;
/// The width of a head is padded to a multiple of this.
const HEAD_STEP: usize = 4;
/// The widest head that attention computes.
const WIDEST_HEAD: usize = 256;

/// The sizes of a model's forward, per image or per text. Padding is zeros, behind each row and each head.
#[derive(Clone, Copy, Debug)]
pub(super) struct CudaGeometry {
    /// Patches down and across.
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Side of a patch in pixels; 0 for texts.
    pub(super) patch: usize,
    pub(super) sample: SampleType,
    /// A patch's samples, padded.
    pub(super) padded: usize,
    /// Tokens of an image, or the most of a text.
    pub(super) tokens: usize,
    /// True if a token attends to itself and to those before it alone.
    pub(super) causal: bool,
    /// Tokens before the patches' tokens.
    pub(super) prefix: usize,
    /// Width of a token.
    pub(super) width: usize,
    /// The same, padded.
    pub(super) hidden: usize,
    pub(super) layers: BlockSizes,
    /// Attention pooling, if the vector needs it.
    pub(super) probe: Option<BlockSizes>,
    pub(super) activation: Activation,
    pub(super) pooling: Pooling,
    /// The token that is pooled, if one is.
    pub(super) token: usize,
    /// The length of a vector.
    pub(super) dim: usize,
}

/// The sizes of a transformer block, or of attention pooling.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockSizes {
    pub(super) heads: usize,
    /// Width of the MLP's hidden layer, padded.
    pub(super) mlp: usize,
    /// True if attention's output is added to the tokens. Attention pooling's is not.
    pub(super) is_residual: bool,
}

impl CudaGeometry {
    /// # Errors
    /// [`EncodeError::Model`] if the network lacks the pooling, [`EncodeError::Unsupported`] for too large a batch and
    /// for heads that the kernels cannot divide among threads.
    pub(super) fn new(parts: &Parts<'_>, network: &Network, options: &EncoderOptions) -> Result<Self, EncodeError> {
        let pooling = options.pooling;
        let probe = network.probe.filter(|_| pooling == Pooling::Head);
        let geometry = Self {
            rows: parts.grid().height,
            columns: parts.grid().width,
            patch: network.patch_size,
            sample: options.sample,
            padded: (network.patch_size * network.patch_size * CHANNELS).next_multiple_of(PATCH_STEP),
            tokens: network.words.map_or(parts.tokens(), |words| words.context),
            causal: network.words.is_some_and(|words| words.causal),
            prefix: network.prefix_tokens(),
            width: network.hidden_size,
            hidden: Self::pitch(network.hidden_size),
            layers: BlockSizes {
                heads: network.num_attention_heads,
                mlp: Self::pitch(network.mlp_hidden),
                is_residual: true,
            },
            probe: probe.map(|probe| BlockSizes {
                heads: probe.heads,
                mlp: Self::pitch(probe.mlp_hidden),
                is_residual: false,
            }),
            activation: network.activation,
            pooling,
            token: if pooling == Pooling::Register { network.class_token as usize } else { 0 },
            dim: network.dim(pooling).map_err(crate::encoder::unusable)?,
        };
        geometry.check(options.max_batch)?;
        Ok(geometry)
    }

    fn check(&self, max_batch: usize) -> Result<(), EncodeError> {
        for heads in std::iter::once(&self.layers).chain(&self.probe).map(|sizes| sizes.heads) {
            let head = self.width / heads.max(1);
            let padded = head.next_multiple_of(HEAD_STEP);
            if head * heads != self.width || padded * heads != self.hidden || padded > WIDEST_HEAD {
                let multiple = format!("a head is a multiple of {HEAD_STEP} wide, {WIDEST_HEAD} at most");
                return refused(format!("heads {head} wide; {multiple}"));
            }
        }
        if !self.width.is_multiple_of(2) {
            return refused(format!("tokens {} wide; their width is even", self.width));
        }
        if self.probe.is_some() && self.is_gated() {
            return refused("attention pooling with a gated MLP".to_owned());
        }
        if max_batch > MOST_IMAGES {
            return refused(format!("batches of {max_batch} images; {MOST_IMAGES} at most"));
        }
        Ok(())
    }

    /// Elements from a row of `width` values to the next.
    pub(super) fn pitch(width: usize) -> usize {
        width.next_multiple_of(ROW_STEP)
    }

    /// An image's size in bytes.
    pub(super) fn image_bytes(&self) -> usize {
        self.rows * self.columns * self.patch * self.patch * CHANNELS * self.sample.bytes()
    }

    pub(super) fn patches(&self) -> usize {
        self.rows * self.columns
    }

    /// The same with one token per image.
    pub(super) fn one_token(&self) -> Self {
        Self { tokens: 1, prefix: 1, ..*self }
    }

    /// Returns true if a single token is left of each image at the end: the class token, or attention pooling's.
    pub(super) fn leaves_one_token(&self) -> bool {
        self.patch > 0 && matches!(self.pooling, Pooling::Cls | Pooling::Head)
    }

    pub(super) fn is_gated(&self) -> bool {
        self.activation == Activation::GatedSilu
    }

    /// Outputs of the MLP's first product: of a gated one, gates and values.
    pub(super) fn mlp_inputs(&self, sizes: BlockSizes) -> usize {
        self.activation.inputs() * sizes.mlp
    }
}

fn refused(problem: String) -> Result<(), EncodeError> {
    Err(EncodeError::Unsupported(format!("on CUDA: {problem}")))
}
