//! An open model for many runs.

use std::sync::{Arc, Mutex};

use foveate_core::{PixelBatch, VectorBuf, lock};
use foveate_encode::{EncodeError, EncodeTimes, Encoder, EncoderSpec, Overlap, Resident};
use foveate_model::OpenOptions;
use foveate_pipeline::{Cancel, Config, Pipeline, Progress, RunError, RunReport};
use foveate_preprocess::PreprocessorOpener;
use foveate_sink::{Existing, RunManifest, VectorSink};
use foveate_source::Source;

use crate::embed::{Backends, EmbedError, Settings};

/// A model with its backends, open for one run after another. A run's vectors are those of a job with the same options.
pub struct Embedder {
    manifest: RunManifest,
    preprocessors: PreprocessorOpener,
    encoders: Encoders,
    config: Config,
}

/// The encoders while no run has them.
type Encoders = Arc<Mutex<Vec<Box<dyn Encoder>>>>;

impl Embedder {
    /// Opens the model and the backends that `options` name. Inputs, output and shard are ignored.
    ///
    /// # Errors
    /// If a backend, the device or the model is missing, or does not take the options.
    pub fn open(options: &Settings, backends: &Arc<Backends>, model: &OpenOptions<'_>) -> Result<Self, EmbedError> {
        let chosen = options.open(backends, model)?;
        let mut manifest = chosen.description(options).embedding();
        manifest.dim = chosen.dim();
        let config = Config { cache: chosen.run_cache(options)?, ..options.config() };
        let encoders = Arc::new(Mutex::new(chosen.encoders));
        Ok(Self { manifest, preprocessors: chosen.preprocessors, encoders, config })
    }

    /// Number of components of a vector.
    pub fn dim(&self) -> usize {
        self.manifest.dim
    }

    /// Returns the record of everything that decides the vectors.
    pub fn manifest(&self) -> &RunManifest {
        &self.manifest
    }

    /// Embeds every item of `source` into `sink`; see [`Pipeline::run`]. Batches are no larger than the source.
    ///
    /// # Errors
    /// The run's, such as a source that breaks.
    pub fn run(
        &mut self,
        source: Box<dyn Source>,
        sink: Box<dyn VectorSink>,
        cancel: &Cancel,
        progress: &Progress,
    ) -> Result<RunReport, RunError> {
        let items = source.extent().count().and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
        let config = Config { batch: self.config.batch.min(items.max(1)), ..self.config.clone() };
        let mut encoders = Vec::<Box<dyn Encoder>>::new();
        for encoder in std::mem::take(&mut *lock(&self.encoders)) {
            encoders.push(Box::new(Lent { encoder: Some(encoder), home: Arc::clone(&self.encoders) }));
        }
        let pipeline = Pipeline { source, preprocessors: self.preprocessors.clone(), encoders, sink, config };
        pipeline.run(&self.manifest, Existing::Overwrite, cancel, progress)
    }
}

/// An encoder that goes home when its run ends.
struct Lent {
    /// `None` only while it is dropped.
    encoder: Option<Box<dyn Encoder>>,
    home: Encoders,
}

impl Lent {
    fn encoder(&mut self) -> &mut dyn Encoder {
        self.encoder.as_deref_mut().unwrap_or_else(|| unreachable!("it is taken on drop alone"))
    }
}

impl Encoder for Lent {
    fn spec(&self) -> &EncoderSpec {
        self.encoder.as_deref().unwrap_or_else(|| unreachable!("it is taken on drop alone")).spec()
    }

    fn encode(&mut self, batch: PixelBatch<'_>, out: &mut VectorBuf) -> Result<EncodeTimes, EncodeError> {
        self.encoder().encode(batch, out)
    }

    fn resident(&mut self) -> Option<&mut dyn Resident> {
        self.encoder().resident()
    }

    fn overlap(&mut self) -> Option<&mut dyn Overlap> {
        self.encoder().overlap()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // The lane has collected its batches: see `Lane`'s own drop.
        lock(&self.home).extend(self.encoder.take());
    }
}
