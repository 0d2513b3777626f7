#![doc = include_str!("../README.md")]

mod card;
mod checkpoint;
mod config;
mod error;
mod fold;
mod hash;
mod hub;
mod keys;
mod model;
mod onnx;
mod open;
pub mod parts;
#[cfg(feature = "pickle")]
mod pickle;
mod positions;
mod preprocess;
mod seeded;
mod stored;
mod weights;

pub use card::Card;
pub use checkpoint::Checkpoint;
pub use config::{Config, Grid, TensorSpec};
pub use error::ModelError;
pub use fold::fold_normalization;
pub use hash::sha256_file;
pub use hub::{HubError, HubOptions, NoProgress, Progress, Token};
pub use model::Model;
pub use open::OpenOptions;
pub use positions::interpolate_positions;
pub use preprocess::Preprocess;
pub use seeded::SeededWeights;
pub use weights::Weights;
