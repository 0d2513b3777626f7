//! From names to opened backends and a loaded model.

use std::path::Path;
use std::sync::Arc;

use foveate_core::{Backend, SampleType};
use foveate_encode::{Encoder, EncoderRegistry, GraphFormat, ModelForm};
use foveate_model::{Model, OpenOptions};
use foveate_pipeline::Recall;
use foveate_preprocess::{
    CpuPreprocessor, DecoderOpener, DeviceOptions, Granularity, PreprocessOptions, PreprocessorOpener, ResizerOpener,
};
use foveate_resize::Geometry;
use foveate_sink::RunManifest;
use foveate_source::Source;

use super::fingerprint::JobDescription;
use super::{BackendNames, Backends, CacheSettings, EmbedError, Settings, by_name};
use crate::DecodeScale;
use crate::models::OpenModel;

/// The result of resolving the options.
pub(crate) struct OpenedJob {
    pub(crate) names: BackendNames,
    pub(crate) model: OpenModel,
    pub(crate) geometry: Geometry,
    pub(crate) preprocessors: PreprocessorOpener,
    pub(crate) encoders: Vec<Box<dyn Encoder>>,
    /// The releases that decide the pixels, if any do.
    pixels: Option<String>,
}

impl OpenedJob {
    pub(crate) fn dim(&self) -> usize {
        self.encoders.first().map_or(0, |encoder| encoder.spec().dim)
    }

    /// Describes a run of the inputs of `source`.
    pub(crate) fn manifest(&self, options: &Settings, source: &dyn Source) -> RunManifest {
        RunManifest { dim: self.dim(), ..self.description(options).manifest(source) }
    }

    /// Opens the cache of these options for a run, whose output must not depend on what the cache holds.
    pub(crate) fn run_cache(&self, options: &Settings) -> Result<Option<Arc<dyn Recall>>, EmbedError> {
        let varies = self.encoders.iter().find(|encoder| !encoder.spec().batch_invariant);
        match varies.filter(|_| options.cache.cache.is_some()) {
            Some(encoder) => Err(EmbedError::CacheOfBatches(self.names.encoder.clone(), encoder.spec().device.clone())),
            None => self.cache(options),
        }
    }

    /// Opens the cache of these options.
    pub(crate) fn cache(&self, options: &Settings) -> Result<Option<Arc<dyn Recall>>, EmbedError> {
        let CacheSettings { cache: Some(folder), cache_size } = &options.cache else { return Ok(None) };
        let settings = self.description(options).embedding().fingerprint;
        crate::backends::cache(folder, *cache_size, &settings).map(Some).map_err(EmbedError::Cache)
    }

    pub(crate) fn description<'a>(&'a self, options: &'a Settings) -> JobDescription<'a> {
        // Every device of a job is of the same kind.
        let kernels = self.encoders.first().and_then(|encoder| encoder.spec().kernels.as_deref());
        JobDescription {
            options,
            names: &self.names,
            model: &self.model,
            geometry: &self.geometry,
            kernels,
            pixels: self.pixels.as_deref(),
        }
    }
}

impl Settings {
    /// Checks what can be known before inputs are listed and a model is loaded: `backends` has everything that is
    /// named, and the encoder has the devices.
    pub fn check_backends(&self, backends: &Backends) -> Result<(), EmbedError> {
        let names = BackendNames::choose(self, backends)?;
        let encoder = backends.encoders.get(&self.expected_encoder(names.encoder, &backends.encoders))?;
        let has = encoder.health().devices;
        if self.devices().next().is_none() {
            return Err(EmbedError::NoDevice(self.engine.device.clone()));
        }
        for device in self.devices() {
            // `cuda` means `cuda:0`. If a backend reports no devices, opening it is the check.
            if !has.is_empty() && !has.iter().any(|known| known == device || *known == format!("{device}:0")) {
                return Err(EmbedError::Device { device: device.to_owned(), encoder: encoder.name().to_owned(), has });
            }
        }
        Ok(())
    }

    /// Returns the named encoder, or else the usual one for a model of this name; see [`OpenModel::usual_encoder`].
    fn expected_encoder(&self, first: String, encoders: &EncoderRegistry<Model>) -> String {
        let extension = Path::new(&self.model.network.model).extension().and_then(|extension| extension.to_str());
        let Some(format) = extension.and_then(GraphFormat::of_extension).filter(|_| self.model.encoder.is_none())
        else {
            return first;
        };
        let taker = encoders.iter().find(|backend| backend.takes(ModelForm::Graph(format)));
        taker.map_or(first, |backend| backend.name().to_owned())
    }

    /// Opens the backends and the model, without inputs and output.
    pub(crate) fn open(&self, backends: &Arc<Backends>, model: &OpenOptions<'_>) -> Result<OpenedJob, EmbedError> {
        let (names, model) = self.choose(backends, model)?;
        let geometry = self.model.network.preprocess.geometry(model.preprocess())?;
        let encoders = self.open_encoders(&names.encoder, &model, geometry.format().sample, backends)?;
        let decoder = self.decoder_opener(names.decoders.first().cloned(), backends);
        let resizer = self.resizer_opener(Some(names.resizer.clone()), backends);
        let options = self.preprocess(geometry);
        let preprocessors = self.preprocessors(names.batched.as_deref(), decoder, resizer, options, backends);
        let pixels = names.pixels(backends)?;
        Ok(OpenedJob { names, model, geometry, preprocessors, encoders, pixels })
    }

    /// Chooses the backends by name and loads the model. Names are checked before a model is loaded or downloaded.
    pub(crate) fn choose(
        &self,
        backends: &Backends,
        model: &OpenOptions<'_>,
    ) -> Result<(BackendNames, OpenModel), EmbedError> {
        let mut names = BackendNames::choose(self, backends)?;
        let model = OpenModel::open(&self.model.network.model, model)?;
        if self.model.encoder.is_none() {
            names.encoder = model.usual_encoder(&backends.encoders).unwrap_or(names.encoder);
        }
        Ok((names, model))
    }

    /// Returns the decoder that is tried first. If none is named and downscaling is permitted, it is one that can
    /// downscale.
    pub(super) fn preferred_decoder(&self, backends: &Backends) -> Option<String> {
        match (&self.model.decoder, self.model.decode_scale()) {
            (Some(name), _) if !backends.is_batched(name) => Some(name.clone()),
            (_, DecodeScale::Exact) => None,
            (_, scale) => backends.decoders_at(scale).into_iter().next(),
        }
    }

    /// Returns the opener of a worker's decoder: the named one or the usual one, with the others as fallback.
    pub(crate) fn decoder_opener(&self, name: Option<String>, backends: &Arc<Backends>) -> DecoderOpener {
        let decoding = self.decoding();
        let backends = Arc::clone(backends);
        Arc::new(move || backends.open_decoders(name.as_deref(), &decoding))
    }

    /// Returns the opener of a worker's resizer.
    pub(crate) fn resizer_opener(&self, name: Option<String>, backends: &Arc<Backends>) -> ResizerOpener {
        let backends = Arc::clone(backends);
        Arc::new(move || backends.open_resizer(name.as_deref()))
    }

    /// Returns the opener of a worker's preprocessor: decoder and resizer as one. If `batched` names a preprocessor, it
    /// works on whole batches on the first named device, with these two as fallback.
    pub(crate) fn preprocessors(
        &self,
        batched: Option<&str>,
        decoder: DecoderOpener,
        resizer: ResizerOpener,
        options: PreprocessOptions,
        backends: &Arc<Backends>,
    ) -> PreprocessorOpener {
        let Some(name) = batched.map(str::to_owned) else { return CpuPreprocessor::opener(decoder, resizer, options) };
        let device = self.devices().next().unwrap_or_default().to_owned();
        let settings = by_name(&self.model.decoder_option);
        let backends = Arc::clone(backends);
        PreprocessorOpener::new(Granularity::Batch, options.geometry.format(), move || {
            let fallback = CpuPreprocessor::open(Arc::clone(&decoder), Arc::clone(&resizer), options.clone())?;
            let backend = backends.preprocessors.get(&name)?;
            backend.open(DeviceOptions {
                device: device.clone(),
                options: options.clone(),
                fallback,
                settings: settings.clone(),
            })
        })
    }

    /// Opens an encoder for each named device.
    pub(crate) fn open_encoders(
        &self,
        name: &str,
        model: &OpenModel,
        sample: SampleType,
        backends: &Backends,
    ) -> Result<Vec<Box<dyn Encoder>>, EmbedError> {
        let backend = backends.encoders.get(name)?;
        let each: Vec<_> = self.devices().map(|device| self.encoder_options(device, model, sample)).collect();
        let first = each.first().ok_or_else(|| EmbedError::NoDevice(self.engine.device.clone()))?;
        let model = model.for_backend(backend, &backends.encoders, first)?;
        each.iter().map(|options| Ok(backend.open(&model, options)?)).collect()
    }
}
