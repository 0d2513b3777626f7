use std::fmt;

use crate::family::Family;
use crate::network::Network;
use crate::preprocess::Preprocess;
use crate::weights::Weights;

/// A model, ready for an engine.
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

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("name", &self.name)
            .field("revision", &self.revision)
            .field("family", &self.family.name)
            .field("network", &self.network)
            .field("preprocess", &self.preprocess)
            .field("weights", &self.weights.hash())
            .finish()
    }
}
