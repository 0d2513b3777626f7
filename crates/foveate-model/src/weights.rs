use std::borrow::Cow;
use std::fmt;

use crate::error::ModelError;

/// A checkpoint's named f32 tensors, read on demand.
pub trait Weights: Send + Sync {
    /// Returns the tensor called `name` (Hugging Face `Dinov2Model` naming), row-major, which must have exactly
    /// `shape`.
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Cow<'_, [f32]>, ModelError>;

    /// The shape of `name` in the checkpoint, if it is there.
    fn shape(&self, name: &str) -> Option<Vec<usize>>;

    /// A SHA-256 that identifies the weights, lower-case hex.
    fn hash(&self) -> &str;

    /// Returns true if the weights were generated, so that the vectors have no meaning.
    fn is_seeded(&self) -> bool;
}

impl fmt::Debug for dyn Weights + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.hash())
    }
}
