//! Embedding as a worker's task: for images that arrive one by one.

use std::sync::Arc;

use foveate_model::OpenOptions;
use foveate_sink::RunManifest;
use foveate_worker::Embed;

use crate::embed::{Backends, EmbedError, Settings};

/// Embedding as a task for an engine.
pub struct EmbedTask {
    /// The task.
    pub task: Embed,
    /// The outputs' manifest.
    pub manifest: RunManifest,
    /// Threads that process batches: one for each named device.
    pub lanes: usize,
    /// True if the weights were generated, so that the vectors are meaningless.
    pub seeded: bool,
}

impl Settings {
    /// Chooses the backends and loads the model. Inputs and output are ignored.
    ///
    /// # Errors
    /// The errors of [`Self::prepare`].
    pub fn task(&self, backends: &Arc<Backends>, model: &OpenOptions<'_>) -> Result<EmbedTask, EmbedError> {
        let chosen = self.open(backends, model)?;
        let mut manifest = chosen.description(self).embedding();
        manifest.dim = chosen.dim();
        let cache = chosen.cache(self)?;
        let seeded = chosen.model.is_seeded();
        let lanes = chosen.encoders.len();
        let task = Embed::new(chosen.preprocessors, chosen.encoders, self.model.normalize)?.cache(cache);
        Ok(EmbedTask { task, manifest, lanes, seeded })
    }
}
