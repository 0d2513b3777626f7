use std::path::PathBuf;

use foveate_encode::Pooling;

use crate::family::Family;
use crate::network::{Network, TextLibrary};
use crate::preprocess::Preprocess;
use crate::weights::Weights;

/// A model, ready for an engine.
#[derive(Debug)]
pub struct Model {
    /// The model as the user gave it (`facebook/dinov2-small`, a folder, `seeded:dinov2-small`).
    pub name: String,
    /// The commit of a model from the hub.
    pub revision: Option<String>,
    /// The family, in the layout of one library.
    pub family: &'static Family,
    /// Architecture.
    pub network: Network,
    /// Preprocessing recipe.
    pub preprocess: Preprocess,
    /// The tensors.
    pub weights: Box<dyn Weights>,
}

/// The text tower of a model that embeds images and texts into the same space.
#[derive(Debug)]
pub struct TextModel {
    /// The model as the user gave it.
    pub name: String,
    /// The commit of a model from the hub.
    pub revision: Option<String>,
    /// The family, in the layout of one library.
    pub family: &'static Family,
    /// Architecture, with [`words`](Network::words).
    pub network: Network,
    /// The tensors.
    pub weights: Box<dyn Weights>,
    /// The pooling of the images' vectors in the same space.
    pub pooling: Pooling,
    /// The library that makes tokens.
    pub library: TextLibrary,
    /// The way from cosines to logits; `None` if the weights lack it, as generated ones do.
    pub logits: Option<LogitScale>,
    /// The folder with the tokenizer's files; `None` for generated weights.
    pub folder: Option<PathBuf>,
}

/// The way from the cosine of an image and a text to the model's logit: `scale · cosine + bias`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogitScale {
    /// The inverse of the temperature.
    pub scale: f64,
    /// The bias of a model that was trained with a sigmoid for each pair, as SigLIP is. Without one, the model was
    /// trained with a softmax over the texts, as CLIP is.
    pub bias: Option<f64>,
}
