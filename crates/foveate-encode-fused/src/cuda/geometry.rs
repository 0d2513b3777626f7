//! The sizes of a model's forward.

use foveate_core::CHANNELS;
use foveate_encode::{EncodeError, Pooling};
use foveate_model::parts::Parts;
use foveate_model::{Activation, Model, Network};

/// The largest second and third dimension of a kernel's grid, which count images.
const MOST_IMAGES: usize = 65_535;
/// The rows of the patches' product are padded to a multiple of this many columns, so that the matrix units read whole
/// tiles.
const PATCH_STEP: usize = 16;

/// The sizes of a model's forward, per image.
#[derive(Clone, Copy, Debug)]
pub(super) struct CudaGeometry {
    /// Patches down and across.
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Side of a patch in pixels.
    pub(super) patch: usize,
    /// A patch's samples, padded with zeros.
    pub(super) padded: usize,
    pub(super) tokens: usize,
    /// Tokens before the patches' tokens.
    pub(super) prefix: usize,
    pub(super) hidden: usize,
    pub(super) heads: usize,
    /// Width of the MLP's hidden layer.
    pub(super) mlp: usize,
    pub(super) swiglu: bool,
    pub(super) pooling: Pooling,
}

impl CudaGeometry {
    /// # Errors
    /// [`EncodeError::Model`] if the input is not a whole number of patches, [`EncodeError::Unsupported`] for too large
    /// a batch and for widths that the kernels cannot divide among threads.
    pub(super) fn new(model: &Model, max_batch: usize, pooling: Pooling) -> Result<Self, EncodeError> {
        let network = &model.network;
        check_switches(network, pooling)?;
        let parts = Parts::new(model).map_err(crate::encoder::unusable)?;
        let geometry = Self {
            rows: parts.grid().height,
            columns: parts.grid().width,
            patch: network.patch_size,
            padded: (network.patch_size * network.patch_size * CHANNELS).next_multiple_of(PATCH_STEP),
            tokens: parts.tokens(),
            prefix: network.prefix_tokens(),
            hidden: network.hidden_size,
            heads: network.num_attention_heads,
            mlp: network.mlp_hidden,
            swiglu: network.activation == Activation::GatedSilu,
            pooling,
        };
        geometry.check(max_batch)?;
        Ok(geometry)
    }

    fn check(&self, max_batch: usize) -> Result<(), EncodeError> {
        let head = self.head();
        let problem = if !self.hidden.is_multiple_of(8) || !self.mlp.is_multiple_of(8) {
            format!("layers {} and {} wide; widths are multiples of 8", self.hidden, self.mlp)
        } else if head * self.heads != self.hidden || !head.is_multiple_of(4) || head > 128 {
            format!("heads {head} wide; a head is a multiple of 4 wide, 128 at most")
        } else if max_batch > MOST_IMAGES {
            format!("batches of {max_batch} images; {MOST_IMAGES} at most")
        } else {
            return Ok(());
        };
        Err(EncodeError::Unsupported(format!("on CUDA: {problem}")))
    }

    /// An image's size in bytes.
    pub(super) fn image_bytes(&self) -> usize {
        self.rows * self.columns * self.patch * self.patch * CHANNELS
    }

    pub(super) fn patches(&self) -> usize {
        self.rows * self.columns
    }

    /// The same with class tokens alone.
    pub(super) fn class_alone(&self) -> Self {
        Self { tokens: 1, prefix: 1, ..*self }
    }

    /// Width of a head.
    pub(super) fn head(&self) -> usize {
        self.hidden / self.heads.max(1)
    }

    /// Outputs of the MLP's first product: with SwiGLU, gates and values.
    pub(super) fn mlp_inputs(&self) -> usize {
        if self.swiglu { 2 * self.mlp } else { self.mlp }
    }

    /// The length of a vector.
    pub(super) fn dim(&self) -> usize {
        self.pooling.dim(self.hidden)
    }

    /// The kernel's code for the pooling.
    pub(super) fn pooling_code(&self) -> i32 {
        match self.pooling {
            Pooling::Cls => 0,
            Pooling::Mean => 1,
            Pooling::ClsMean => 2,
            Pooling::Register | Pooling::Head => unreachable!("refused at load"),
        }
    }
}

/// Refuses what the kernels do not compute.
fn check_switches(network: &Network, pooling: Pooling) -> Result<(), EncodeError> {
    let activation = format!("the activation {}", network.activation.name());
    let pooling_name = format!("pooling '{}'", pooling.name());
    let switches = [
        (network.rotary.is_some(), "rotary positions"),
        (network.stem_norm, "a norm before the first block"),
        (!network.class_token, "tokens without a class token"),
        (!matches!(network.activation, Activation::Gelu | Activation::GatedSilu), activation.as_str()),
        (matches!(pooling, Pooling::Register | Pooling::Head), pooling_name.as_str()),
    ];
    match switches.iter().find(|(is_needed, _)| *is_needed) {
        Some((_, switch)) => {
            let what = format!("{switch} in the CUDA kernels of `fused`; use `candle` or `tch`, or the CPU");
            Err(EncodeError::Unsupported(what))
        }
        None => Ok(()),
    }
}
