#![doc = include_str!("../README.md")]

mod card;
mod checkpoint;
mod error;
mod families;
mod family;
mod fold;
mod hash;
mod hub;
mod keys;
mod layout;
mod model;
mod network;
mod onnx;
mod open;
pub mod parts;
#[cfg(feature = "pickle")]
mod pickle;
mod positions;
mod preprocess;
mod rotary;
mod seeded;
mod stored;
mod text;
mod weights;

pub use card::Card;
pub use checkpoint::Checkpoint;
pub use error::ModelError;
pub use family::Family;
pub use fold::fold_normalization;
pub use hash::sha256_file;
pub use hub::{HubError, HubOptions, NoProgress, Progress, Token};
pub use model::{LogitScale, Model, TextModel};
pub use network::{
    Activation, AttentionBias, Grid, Interpolation, Network, PooledWord, PositionTable, ProbeShape, Projection, Rotary,
    TensorSpec, TextLibrary, WordTable,
};
pub use open::OpenOptions;
pub use positions::interpolate_positions;
pub use preprocess::{PixelLibrary, Preprocess};
pub use rotary::RotaryTable;
pub use seeded::SeededWeights;
pub use weights::Weights;
