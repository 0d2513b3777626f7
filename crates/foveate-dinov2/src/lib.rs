#![doc = include_str!("../README.md")]

use std::borrow::Cow;
use std::fmt;

mod card;
mod checkpoint;
mod config;
mod error;
mod fold;
mod hub;
mod keys;
mod onnx;
mod open;
pub mod parts;
mod positions;
mod preprocess;
mod seeded;

pub use card::Card;
pub use checkpoint::{Checkpoint, sha256_file};
pub use config::{Config, Grid, TensorSpec};
pub use error::ModelError;
pub use fold::fold_normalization;
pub use hub::{HubError, HubOptions, NoProgress, Progress, Token};
pub use positions::interpolate_positions;
pub use preprocess::Preprocess;
pub use seeded::SeededWeights;

/// A model ready to be given to an engine.
pub struct Model {
    /// What the user asked for (`facebook/dinov2-small`, a folder, `seeded:dinov2-small`).
    pub name: String,
    /// The commit that a model from the hub was read at.
    pub revision: Option<String>,
    /// Architecture.
    pub config: Config,
    /// Preprocessing recipe.
    pub preprocess: Preprocess,
    /// The tensors.
    pub weights: Box<dyn Weights>,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("name", &self.name)
            .field("revision", &self.revision)
            .field("config", &self.config)
            .field("preprocess", &self.preprocess)
            .field("weights", &self.weights.hash())
            .finish()
    }
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

/// What [`Model::open`] may use besides the files it is pointed at.
#[derive(Clone)]
pub struct OpenOptions<'a> {
    /// How the hub is reached.
    pub hub: HubOptions,
    /// Told of downloads.
    pub progress: &'a dyn Progress,
}

impl OpenOptions<'static> {
    /// The hub as the environment variables of Hugging Face's libraries describe it, and no report of progress.
    pub fn from_env() -> Self {
        Self { hub: HubOptions::from_env(), progress: &NoProgress }
    }
}

/// Lower-case hexadecimal.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
