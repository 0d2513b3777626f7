use std::fmt;

use crate::config::Config;
use crate::preprocess::Preprocess;
use crate::weights::Weights;

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
