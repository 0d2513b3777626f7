//! The backends that a job chooses from, and their names.

use std::collections::BTreeSet;
use std::path::Path;

use foveate_core::Backend;
use foveate_decode::{ByFormat, DecodeError, Decoder, DecoderOptions, DecoderRegistry};
use foveate_encode::EncoderRegistry;
use foveate_model::Model;
use foveate_preprocess::PreprocessorRegistry;
use foveate_resize::{ResizeError, Resizer, ResizerRegistry};
use foveate_sink::{SinkBackend, SinkRegistry};

use super::{EmbedError, Settings};
use crate::DecodeScale;

/// The registries that a job chooses from. It is a plain value: add a backend of your own before passing it on.
#[derive(Debug)]
pub struct Backends {
    /// `--decoder`.
    pub decoders: DecoderRegistry,
    /// Also `--decoder`: preprocessors, which decode and resize whole batches on a device.
    pub preprocessors: PreprocessorRegistry,
    /// `--resizer`.
    pub resizers: ResizerRegistry,
    /// `--encoder`.
    pub encoders: EncoderRegistry<Model>,
    /// `--sink`.
    pub sinks: SinkRegistry,
}

impl Backends {
    /// Returns the backends that this build contains.
    pub fn compiled() -> Self {
        use crate::backends::{decoders, encoders, preprocessors, resizers, sinks};
        Self {
            decoders: decoders(),
            preprocessors: preprocessors(),
            resizers: resizers(),
            encoders: encoders(),
            sinks: sinks(),
        }
    }

    /// Opens all decoders as one. `preferred`, or else the first, is tried first; the others decode the formats that it
    /// cannot read.
    pub fn open_decoders(
        &self,
        preferred: Option<&str>,
        options: &DecoderOptions,
    ) -> Result<Box<dyn Decoder>, DecodeError> {
        let mut decoders = Vec::new();
        for name in
            preferred_first(&self.decoders, preferred).map_err(|error| DecodeError::Unavailable(error.into()))?
        {
            let backend = self.decoders.get(&name).map_err(|error| DecodeError::Unavailable(error.into()))?;
            decoders.push(backend.open(options)?);
        }
        Ok(Box::new(ByFormat::new(decoders)))
    }

    /// Returns true if the decoder of this name prepares whole batches on a device.
    pub fn is_batched(&self, name: &str) -> bool {
        self.preprocessors.known().contains(&name)
    }

    /// Returns the decoders that decode at this scale.
    pub fn decoders_at(&self, scale: DecodeScale) -> Vec<String> {
        let mut able = Vec::new();
        for backend in self.decoders.iter() {
            if backend.open(&DecoderOptions::default()).is_ok_and(|decoder| scale.is_within(&decoder.capability())) {
                able.push(backend.name().to_owned());
            }
        }
        able
    }

    /// Returns the sink called `name`, or the first one.
    ///
    /// # Errors
    /// Fails if this build does not contain it, or contains no sink at all.
    pub fn sink(&self, name: Option<&str>) -> Result<&SinkBackend, EmbedError> {
        Ok(self.sinks.get(&name_or_first(&self.sinks, name)?)?)
    }

    /// Returns the sink that writes files of this name's extension, in upper or lower case.
    pub fn sink_of_extension(&self, output: &Path) -> Option<&SinkBackend> {
        self.sinks.iter().find(|sink| has_extension(output, sink))
    }

    /// Opens the resizer called `name`, or the first one.
    pub fn open_resizer(&self, name: Option<&str>) -> Result<Box<dyn Resizer>, ResizeError> {
        let name = name_or_first(&self.resizers, name).map_err(|error| ResizeError::Unavailable(error.into()))?;
        self.resizers.get(&name).map_err(|error| ResizeError::Unavailable(error.into()))?.open()
    }
}

/// The names of the job's backends, all of them known to exist.
pub(crate) struct BackendNames {
    /// The preprocessor of whole batches that replaces the first decoder and the resizer. Those two process the images
    /// that it cannot.
    pub(crate) batched: Option<String>,
    pub(crate) decoders: Vec<String>,
    pub(crate) resizer: String,
    pub(crate) encoder: String,
}

impl BackendNames {
    pub(super) fn choose(options: &Settings, backends: &Backends) -> Result<Self, EmbedError> {
        let Backends { decoders, resizers, encoders, .. } = backends;
        let batched = options.model.decoder.as_ref().filter(|name| backends.is_batched(name));
        if let (None, Some(setting)) = (batched, options.model.decoder_option.first().map(|(name, _)| name)) {
            return Err(EmbedError::DecoderSetting(setting.clone()));
        }
        if options.model.decode_scale() != DecodeScale::Exact {
            let able = backends.decoders_at(options.model.decode_scale());
            let decoder = options
                .model
                .decoder
                .clone()
                .map_or_else(|| name_or_first(decoders, able.first().map(String::as_str)), Ok)?;
            if !able.contains(&decoder) {
                return Err(EmbedError::DecodeScale { decoder, scale: options.model.decode_scale(), able });
            }
        }
        Ok(Self {
            batched: batched
                .map(|name| backends.preprocessors.get(name))
                .transpose()?
                .map(|found| found.name().to_owned()),
            decoders: preferred_first(decoders, options.preferred_decoder(backends).as_deref())?,
            resizer: name_or_first(resizers, options.model.resizer.as_deref())?,
            encoder: name_or_first(encoders, options.model.encoder.as_deref())?,
        })
    }

    /// Returns the releases of libraries that decide the pixels, if any do. Fallbacks take too few images to count.
    pub(super) fn pixels(&self, backends: &Backends) -> Result<Option<String>, EmbedError> {
        let mut releases = BTreeSet::new();
        if let Some(batched) = &self.batched {
            releases.extend(backends.preprocessors.get(batched)?.health().pixels);
        } else {
            if let Some(decoder) = self.decoders.first() {
                releases.extend(backends.decoders.get(decoder)?.health().pixels);
            }
            releases.extend(backends.resizers.get(&self.resizer)?.health().pixels);
        }
        let all: Vec<String> = releases.into_iter().collect();
        Ok((!all.is_empty()).then(|| all.join(", ")))
    }
}

pub(super) fn name_or_first<B: Backend>(
    registry: &foveate_core::Registry<B>,
    name: Option<&str>,
) -> Result<String, EmbedError> {
    match name {
        Some(name) => Ok(registry.get(name)?.name().to_owned()),
        None => {
            let first = registry.iter().next().ok_or(EmbedError::NoBackend(registry.kind()))?;
            Ok(first.name().to_owned())
        }
    }
}

fn preferred_first(decoders: &DecoderRegistry, name: Option<&str>) -> Result<Vec<String>, EmbedError> {
    let first = name_or_first(decoders, name)?;
    let others = decoders.iter().map(|backend| backend.name().to_owned()).filter(|name| *name != first);
    Ok(std::iter::once(first.clone()).chain(others).collect())
}

pub(super) fn has_extension(output: &Path, sink: &SinkBackend) -> bool {
    output.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(sink.extension()))
}
