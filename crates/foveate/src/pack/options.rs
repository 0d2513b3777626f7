//! The inputs of `pack`, and its settings.

use std::collections::BTreeMap;
use std::sync::Arc;

use foveate_core::{Backend as _, PixelBudget};
use foveate_model::OpenOptions;
use foveate_pipeline::RunError;
use foveate_sink::RunManifest;
use foveate_source::Source;
use foveate_source::container::ID_COLUMN;

use super::shrink::{Resize, Shrink};
use crate::DecodeScale;
use crate::embed::{Backends, EmbedError, Settings};
use crate::verify::VerifyError;

/// The inputs of `pack`, and its settings.
#[derive(Clone, Debug)]
pub struct PackOptions {
    /// The inputs with their limits, the output's folder, and what to do if it exists.
    pub job: Settings,
    /// A container format that can be written.
    pub format: String,
    /// Bytes of images after which a shard ends.
    pub shard_bytes: u64,
    /// The size of larger photos, which needs the job's model; `None` copies the bytes of every image.
    pub resize: Option<Resize>,
    /// Threads that read and resize.
    pub workers: usize,
}

/// The reason that images could not be packed. Complete shards stay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// The format is unknown, or the output's place is taken.
    #[error(transparent)]
    Embed(#[from] EmbedError),
    /// The run stopped.
    #[error(transparent)]
    Run(#[from] RunError),
    /// No container of this format can be written.
    #[error("shards of {format} cannot be written, only those of {known}")]
    Format {
        /// The format.
        format: String,
        /// The formats that can.
        known: String,
    },
    /// The sample could not be embedded.
    #[error(transparent)]
    Drift(#[from] VerifyError),
    /// Photos would be made smaller twice.
    #[error("photos are resized from all of their pixels, not at the decode scale {0}")]
    DecodeScale(DecodeScale),
    /// The columns have the name of one that every shard has.
    #[error("a shard has its own column '{0}'")]
    Column(String),
}

impl PackOptions {
    /// Checks the format and the columns. Creates nothing.
    ///
    /// # Errors
    /// [`PackError::Format`], [`PackError::Column`], or that this build has no such format.
    pub fn check(&self) -> Result<(), PackError> {
        let formats = crate::backends::containers();
        if !formats.get(&self.format).map_err(EmbedError::from)?.is_writable() {
            let known: Vec<_> = formats.iter().filter(|known| known.is_writable()).map(|known| known.name()).collect();
            return Err(PackError::Format { format: self.format.clone(), known: known.join(", ") });
        }
        if self.resize.is_some() && self.job.model.decode_scale() != DecodeScale::Exact {
            return Err(PackError::DecodeScale(self.job.model.decode_scale()));
        }
        match self.job.rows.columns.iter().find(|name| [ID_COLUMN, "image"].contains(&name.as_str())) {
            Some(name) => Err(PackError::Column(name.clone())),
            None => Ok(()),
        }
    }

    /// Returns everything that decides the shards' bytes, except the content of the inputs.
    pub(super) fn fingerprint(&self, source: &dyn Source) -> BTreeMap<String, String> {
        let Self { job, format, shard_bytes, .. } = self;
        let mut fingerprint = BTreeMap::new();
        let mut set = |name: &str, value: String| drop(fingerprint.insert(name.to_owned(), value));
        set("foveate", crate::VERSION.to_owned());
        set(RunManifest::LISTING, source.listing_hash());
        set(RunManifest::ITEMS, source.part());
        set(RunManifest::COMMAND, RunManifest::PACK.to_owned());
        set("sink.format", format.clone());
        set("shard_bytes", shard_bytes.to_string());
        set("max_bytes", job.inputs.max_bytes.to_string());
        if !job.rows.columns.is_empty() {
            set("sink.columns", job.rows.columns.join(","));
        }
        for (name, column) in [("image_column", &job.inputs.image_column), ("id_column", &job.rows.id_column)] {
            if let Some(column) = column {
                set(name, column.clone());
            }
        }
        fingerprint
    }

    /// Chooses what decodes and resizes, and adds it to the `fingerprint`.
    pub(super) fn shrink(
        &self,
        resize: Resize,
        backends: &Arc<Backends>,
        model: &OpenOptions<'_>,
        fingerprint: &mut BTreeMap<String, String>,
    ) -> Result<Shrink, EmbedError> {
        let job = &self.job;
        let (names, model) = job.choose(backends, model)?;
        let filter = job.model.network.preprocess.geometry(model.preprocess())?.filter();
        let mut set = |name: &str, value: String| drop(fingerprint.insert(name.to_owned(), value));
        set("resize", format!("shorter side {}, {filter:?}", resize.edge));
        set("quality", resize.quality.to_string());
        set("decoder", names.decoders.join(","));
        set("resizer", names.resizer.clone());
        set("orientation", job.images.orientation.name().to_owned());
        set("allow_truncated", job.images.allow_truncated.to_string());
        set("max_pixels", job.model.network.max_pixels.to_string());
        set("model", model.name().to_owned());
        Ok(Shrink {
            resize,
            filter,
            decoder: job.decoder_opener(names.decoders.into_iter().next(), backends),
            resizer: job.resizer_opener(Some(names.resizer), backends),
            orientation: job.images.orientation,
            limits: job.model.limits(),
            budget: PixelBudget::new(job.engine.pixel_memory),
        })
    }
}
