//! The main job as a library call: from names and paths to a [`Pipeline`] that is ready to run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foveate_core::{Backend, PixelLimits, UnknownBackend};
use foveate_decode::{ByFormat, DecodeError, Decoder, DecoderBackend, DecoderOptions, DecoderRegistry};
use foveate_dinov2::{Model, ModelError, OpenOptions};
use foveate_encode::{DType, EncodeError, Encoder, EncoderOptions, EncoderRegistry, GraphFormat, ModelForm, Pooling};
use foveate_lane::Normalize;
use foveate_pipeline::{Cancel, Config, FailurePolicy, Pipeline, Progress, RunError, RunReport};
use foveate_preprocess::{
    CpuPreprocessor, DecoderOpener, DeviceOptions, Granularity, OrientationPolicy, PreprocessError, PreprocessOptions,
    PreprocessorOpener, PreprocessorRegistry, ResizerOpener,
};
use foveate_profile::Trace;
use foveate_resize::{Geometry, ResizeError, Resizer, ResizerRegistry};
use foveate_sink::{
    Element, Existing, Layout, Prefix, RunManifest, SinkBackend, SinkError, SinkOptions, SinkRegistry, VectorSink,
};
use foveate_source::container::ContainerOptions;
use foveate_source::store::{StoreOptions, scheme_of};
use foveate_source::{Extent, Input, Listing, Source, SourceError};

use crate::collect::{MemorySink, Sample};
use crate::models::OpenModel;
use crate::{DecodeScale, Recipe, RecipeError, Shard, recipe};

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
        let unavailable = |error: EmbedError| DecodeError::Unavailable(error.into());
        let names = preferred_first(&self.decoders, preferred).map_err(unavailable)?;
        let open = |name: &String| self.decoders.get(name).map_err(|error| unavailable(error.into()))?.open(options);
        Ok(Box::new(ByFormat::new(names.iter().map(open).collect::<Result<_, _>>()?)))
    }

    /// Tells whether the decoder of this name prepares whole batches on a device.
    pub fn is_batched(&self, name: &str) -> bool {
        self.preprocessors.known().contains(&name)
    }

    /// Returns the decoders that decode at this scale.
    pub fn decoders_at(&self, scale: DecodeScale) -> Vec<String> {
        let is_able = |backend: &&DecoderBackend| {
            backend.open(&DecoderOptions::default()).is_ok_and(|decoder| scale.is_within(&decoder.capability()))
        };
        self.decoders.iter().filter(is_able).map(|backend| backend.name().to_owned()).collect()
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
        let unavailable = |error: EmbedError| ResizeError::Unavailable(error.into());
        let name = name_or_first(&self.resizers, name).map_err(unavailable)?;
        self.resizers.get(&name).map_err(|error| unavailable(error.into()))?.open()
    }
}

/// The inputs, the backends and the settings of a job. A backend that is not named is the first one compiled in.
#[derive(Clone, Debug)]
pub struct EmbedOptions {
    /// The images, in output order.
    pub inputs: Vec<Input>,
    /// Maximum number of inputs, from the first on.
    pub limit: Option<u64>,
    /// Maximum bytes of one file.
    pub max_bytes: u64,
    /// Maximum bytes of the listing's snapshot.
    pub max_listing: u64,
    /// Fields of containers' members that become columns of the output.
    pub columns: Vec<String>,
    /// The column of a table that holds the images; `None` finds it by its type.
    pub image_column: Option<String>,
    /// The column of a table that holds the ids.
    pub id_column: Option<String>,
    /// Objects of a store that are requested at a time.
    pub requests: usize,
    /// Settings specific to the store, by name (`endpoint` of `s3`).
    pub store_settings: BTreeMap<String, String>,
    /// The model: a card's name, a hub repository, a folder, or `seeded:<card>`.
    pub model: String,
    /// Path of the output, or the address of a prefix in a store; its extension, or `sink`, decides the format.
    pub output: PathBuf,
    /// Settings specific to the store of an output, by name; `None` for [`Self::store_settings`].
    pub output_settings: Option<BTreeMap<String, String>>,
    /// The folder for files on their way to a store; `None` for the system's folder of temporary files.
    pub staging: Option<PathBuf>,
    /// The action if the output already exists.
    pub existing: Existing,
    /// Output format by name, for folders and unusual extensions.
    pub sink: Option<String>,
    /// Settings specific to the sink, by name (`compression` of `parquet`).
    pub sink_settings: BTreeMap<String, String>,
    /// The decoder tried first; the others decode the formats it cannot read.
    pub decoder: Option<String>,
    /// The resizer.
    pub resizer: Option<String>,
    /// The encoder.
    pub encoder: Option<String>,
    /// Preprocessing recipe.
    pub recipe: Recipe,
    /// How tokens become one vector.
    pub pooling: Pooling,
    /// Precision of the forward.
    pub dtype: DType,
    /// Device of the forward; several devices, separated by commas, share the batches.
    pub device: String,
    /// Threads of the forward on a CPU.
    pub encoder_threads: usize,
    /// Settings specific to the encoder's backend, by name.
    pub encoder_settings: BTreeMap<String, String>,
    /// Settings specific to the decoder that prepares whole batches, by name.
    pub decoder_settings: BTreeMap<String, String>,
    /// How vectors are stored.
    pub element: Element,
    /// Items of the source that one part covers.
    pub part_items: u64,
    /// The part of the inputs that this run processes.
    pub shard: Option<Shard>,
    /// How malformed input is treated.
    pub decoding: DecoderOptions,
    /// Whether decoders may downscale.
    pub decode_scale: DecodeScale,
    /// Whether EXIF orientation is applied.
    pub orientation: OrientationPolicy,
    /// Whether vectors are scaled to unit length.
    pub normalize: Normalize,
    /// Maximum pixels of one image.
    pub limits: PixelLimits,
    /// Images per batch.
    pub batch: usize,
    /// Threads that decode and resize; 0 runs every stage in turn on one thread.
    pub workers: usize,
    /// Threads that read.
    pub readers: usize,
    /// Maximum number of full batches that wait for the encoder.
    pub prefetch: usize,
    /// The trace that records every span, for a timeline.
    pub trace: Option<Trace>,
    /// When to stop a run whose items fail.
    pub failures: FailurePolicy,
    /// Maximum unreadable inputs in a row; see [`Config::max_unreadable`].
    pub max_unreadable: Option<u64>,
    /// Interval between commits, which make finished rows durable.
    pub commit_every: std::time::Duration,
    /// Whether the inputs of an output that is already complete are compared by hash, not by size and time.
    pub by_content: bool,
    /// Whether the contents of an output that is already complete are compared with their hashes.
    pub check: bool,
}

impl EmbedOptions {
    /// Returns the default job: `inputs` through `model` on the CPU in f32 with the `hf` recipe, to `output`.
    ///
    /// On a CPU the forward takes nearly all the time, so it gets every core. One decode worker for every four cores
    /// keeps it supplied. That is one thread more than there are cores, for a quarter of the time or less. Taking it
    /// from the forward's threads instead measured half the throughput on two cores (18.5 against 37 images/s).
    pub fn new(inputs: Vec<Input>, model: impl Into<String>, output: impl Into<PathBuf>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            inputs,
            limit: None,
            max_bytes: foveate_source::DEFAULT_MAX_BYTES,
            max_listing: foveate_source::DEFAULT_MAX_LISTING,
            columns: Vec::new(),
            image_column: None,
            id_column: None,
            requests: StoreOptions::DEFAULT_REQUESTS,
            store_settings: BTreeMap::new(),
            model: model.into(),
            output: output.into(),
            output_settings: None,
            staging: None,
            existing: Existing::Resume,
            sink: None,
            sink_settings: BTreeMap::new(),
            decoder: None,
            resizer: None,
            encoder: None,
            recipe: Recipe::default(),
            pooling: Pooling::default(),
            dtype: DType::default(),
            device: "cpu".to_owned(),
            encoder_threads: cores,
            encoder_settings: BTreeMap::new(),
            decoder_settings: BTreeMap::new(),
            element: Element::default(),
            part_items: SinkOptions::DEFAULT_PART_ITEMS,
            shard: None,
            decoding: DecoderOptions::default(),
            decode_scale: DecodeScale::default(),
            orientation: OrientationPolicy::default(),
            normalize: Normalize::default(),
            limits: PixelLimits::DEFAULT,
            batch: 32,
            workers: Self::usual_workers("cpu", None),
            readers: 2,
            prefetch: 1,
            trace: None,
            failures: FailurePolicy::default(),
            max_unreadable: Some(Config::MAX_UNREADABLE),
            commit_every: std::time::Duration::from_secs(2),
            by_content: false,
            check: false,
        }
    }

    /// Returns the usual number of decode and resize threads for a forward on `device`. On the CPU it is a quarter of
    /// the cores (see [`Self::new`]), elsewhere every core. A `decoder` that prepares whole batches gets a few: each of
    /// its threads has memory on the device and little to do.
    pub fn usual_workers(device: &str, decoder: Option<&str>) -> usize {
        const BATCHED: usize = 4;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let is_batched = decoder.is_some_and(|name| crate::backends::preprocessors().known().contains(&name));
        match has_cpu(device) {
            true => cores.div_ceil(4),
            false if is_batched => cores.min(BATCHED),
            false => cores,
        }
    }

    /// Lists the inputs of this shard, up to the limit. `progress` receives the number found so far.
    pub fn list(&self, progress: impl FnMut(u64)) -> Result<Listing, SourceError> {
        let (max_bytes, columns) = (self.max_bytes, self.columns.clone());
        let (image_column, id_column) = (self.image_column.clone(), self.id_column.clone());
        let containers = ContainerOptions { max_bytes, columns, image_column, id_column };
        let mut builder = Listing::builder().inputs(self.inputs.iter().cloned());
        builder = builder.max_bytes(self.max_bytes).max_listing(self.max_listing);
        builder = builder.containers(Arc::new(crate::backends::containers()), containers);
        builder = builder.stores(Arc::new(crate::backends::stores()), self.store_options());
        if let Some(shard) = self.shard {
            builder = builder.shard(shard.index, shard.count);
        }
        if let Some(limit) = self.limit {
            builder = builder.limit(limit);
        }
        builder.progress(progress).build()
    }

    /// Returns how the inputs' stores are read.
    pub(crate) fn store_options(&self) -> StoreOptions {
        let (max_bytes, settings) = (self.max_bytes, self.store_settings.clone());
        StoreOptions { max_bytes, requests: self.requests, settings, ..StoreOptions::default() }
    }

    /// Checks what can be known before inputs are listed and a model is loaded: `backends` has everything that is
    /// named, and the encoder has the devices.
    pub fn check_backends(&self, backends: &Backends) -> Result<(), EmbedError> {
        let names = Names::choose(self, backends)?;
        let encoder = backends.encoders.get(&self.expected_encoder(names.encoder, &backends.encoders))?;
        let has = encoder.health().devices;
        if self.devices().next().is_none() {
            return Err(EmbedError::NoDevice(self.device.clone()));
        }
        // `cuda` means `cuda:0`.
        let is_there = |device: &str| has.iter().any(|known| known == device || *known == format!("{device}:0"));
        // If a backend reports no devices, opening it is the check.
        match self.devices().find(|device| !has.is_empty() && !is_there(device)) {
            None => Ok(()),
            Some(device) => {
                let (device, encoder) = (device.to_owned(), encoder.name().to_owned());
                Err(EmbedError::Device { device, encoder, has })
            }
        }
    }

    /// Checks the output's format, its settings and its place. Creates nothing.
    pub fn check_output(&self, backends: &Backends) -> Result<(), EmbedError> {
        let options = self.sink_options(0)?;
        let sink = backends.sinks.get(&self.sink_name(&backends.sinks)?)?;
        if !options.columns.is_empty() && !sink.has_columns() {
            let able = backends.sinks.iter().filter(|sink| sink.has_columns()).map(|sink| sink.name().to_owned());
            return Err(EmbedError::NoColumns { sink: sink.name().to_owned(), able: able.collect() });
        }
        sink.open(&options)?;
        let other = self.shard.and_then(|shard| Some((shard, shard.other_count(&self.output, options.layout)?)));
        if let Some((shard, file)) = other {
            return Err(EmbedError::ShardCount { shard, file });
        }
        Ok(foveate_sink::staging::check_place(&options)?)
    }

    /// Returns the named encoder, or else the usual one for a model of this name; see [`OpenModel::usual_encoder`].
    fn expected_encoder(&self, first: String, encoders: &EncoderRegistry<Model>) -> String {
        let extension = Path::new(&self.model).extension().and_then(|extension| extension.to_str());
        let Some(format) = extension.and_then(GraphFormat::of_extension).filter(|_| self.encoder.is_none()) else {
            return first;
        };
        let taker = encoders.iter().find(|backend| backend.takes(ModelForm::Graph(format)));
        taker.map_or(first, |backend| backend.name().to_owned())
    }

    /// Chooses the backends, loads the model, and assembles the job. Writes nothing. `source` is the result of
    /// [`list`](Self::list), or a source of the caller's own.
    pub fn prepare(
        &self,
        source: Box<dyn Source>,
        backends: &Arc<Backends>,
        model: &OpenOptions<'_>,
    ) -> Result<EmbedRun, EmbedError> {
        let backend = backends.sinks.get(&self.sink_name(&backends.sinks)?)?;
        let options = self.sink_options(source.extent().start)?;
        let run = self.prepare_into(source, backend.open(&options)?, backends, model)?;
        Ok(EmbedRun { output: Some(options), ..run })
    }

    /// Does the same with a sink of the caller's own; `output` and the other output options are ignored.
    pub fn prepare_into(
        &self,
        source: Box<dyn Source>,
        sink: Box<dyn VectorSink>,
        backends: &Arc<Backends>,
        model: &OpenOptions<'_>,
    ) -> Result<EmbedRun, EmbedError> {
        let chosen = self.open(backends, model)?;
        let mut manifest = chosen.description(self).manifest(source.as_ref());
        manifest.dim = chosen.dim();
        let seeded = chosen.model.is_seeded();
        let Chosen { preprocessors, encoders, .. } = chosen;
        let pipeline = Pipeline { source, preprocessors, encoders, sink, config: self.config() };
        Ok(EmbedRun { pipeline, manifest, existing: self.existing, seeded, output: None })
    }

    /// Opens the backends and the model, without inputs and output.
    pub(crate) fn open(&self, backends: &Arc<Backends>, model: &OpenOptions<'_>) -> Result<Chosen, EmbedError> {
        let (names, model) = self.choose(backends, model)?;
        let geometry = self.recipe.geometry(model.preprocess())?;
        let encoders = self.open_encoders(&names.encoder, &model, backends)?;
        let decoder = self.decoder_opener(names.decoders.first().cloned(), backends);
        let resizer = self.resizer_opener(Some(names.resizer.clone()), backends);
        let options = self.preprocess(geometry);
        let preprocessors = self.preprocessors(names.batched.as_deref(), decoder, resizer, options, backends);
        Ok(Chosen { names, model, geometry, preprocessors, encoders })
    }

    /// Chooses the backends by name and loads the model. Names are checked before a model is loaded or downloaded.
    pub(crate) fn choose(
        &self,
        backends: &Backends,
        model: &OpenOptions<'_>,
    ) -> Result<(Names, OpenModel), EmbedError> {
        let mut names = Names::choose(self, backends)?;
        let model = OpenModel::open(&self.model, model)?;
        if self.encoder.is_none() {
            names.encoder = model.usual_encoder(&backends.encoders).unwrap_or(names.encoder);
        }
        Ok((names, model))
    }

    /// Returns the decoder that is tried first. If none is named and downscaling is permitted, it is one that can
    /// downscale.
    fn preferred_decoder(&self, backends: &Backends) -> Option<String> {
        match (&self.decoder, self.decode_scale) {
            (Some(name), _) if !backends.is_batched(name) => Some(name.clone()),
            (_, DecodeScale::Exact) => None,
            (_, scale) => backends.decoders_at(scale).into_iter().next(),
        }
    }

    /// Returns the opener of a worker's decoder: the named one or the usual one, with the others as fallback.
    pub(crate) fn decoder_opener(&self, name: Option<String>, backends: &Arc<Backends>) -> DecoderOpener {
        let (decoding, backends) = (self.decoding, Arc::clone(backends));
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
        let (backends, settings) = (Arc::clone(backends), self.decoder_settings.clone());
        PreprocessorOpener::new(Granularity::Batch, options.geometry.output(), move || {
            let fallback = CpuPreprocessor::open(Arc::clone(&decoder), Arc::clone(&resizer), options.clone())?;
            let backend = backends.preprocessors.get(&name)?;
            let (device, options, settings) = (device.clone(), options.clone(), settings.clone());
            backend.open(DeviceOptions { device, options, fallback, settings })
        })
    }

    /// Opens an encoder for each named device.
    pub(crate) fn open_encoders(
        &self,
        name: &str,
        model: &OpenModel,
        backends: &Backends,
    ) -> Result<Vec<Box<dyn Encoder>>, EmbedError> {
        let backend = backends.encoders.get(name)?;
        let each: Vec<_> = self.devices().map(|device| self.encoder_options(device)).collect();
        let first = each.first().ok_or_else(|| EmbedError::NoDevice(self.device.clone()))?;
        let model = model.for_backend(backend, &backends.encoders, first)?;
        each.iter().map(|options| Ok(backend.open(&model, options)?)).collect()
    }

    /// Returns the devices in the order given; a device that is named twice gets two encoders.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &str> {
        devices(&self.device)
    }

    /// Returns the options of one device's encoder; encoders on the CPU share its threads.
    pub(crate) fn encoder_options(&self, device: &str) -> EncoderOptions {
        EncoderOptions {
            pooling: self.pooling,
            dtype: self.dtype,
            device: device.to_owned(),
            max_batch: self.batch,
            threads: (self.encoder_threads / self.devices().count().max(1)).max(1),
            settings: self.encoder_settings.clone(),
        }
    }

    /// Returns the part of the device list that affects the output's bytes: neither the number nor the indexes of the
    /// devices.
    fn kind_of_devices(&self) -> String {
        let kinds: BTreeSet<_> = self.devices().map(|device| device.split(':').next().unwrap_or(device)).collect();
        kinds.into_iter().collect::<Vec<_>>().join(",")
    }

    fn sink_name(&self, sinks: &SinkRegistry) -> Result<String, EmbedError> {
        let Some(name) = &self.sink else { return sink_for(&self.output, sinks) };
        let sink = sinks.get(name)?;
        match Layout::of(&self.output) {
            Layout::File if is_of_another(&self.output, sink, sinks) => Err(EmbedError::OtherFormat {
                output: self.output.clone(),
                sink: sink.name().to_owned(),
                extension: sink.extension(),
            }),
            _ => Ok(sink.name().to_owned()),
        }
    }

    /// Opens the prefix that the output's address names; `None` for a path.
    fn prefix(&self) -> Result<Option<Arc<dyn Prefix>>, EmbedError> {
        let Some(address) = store_address(&self.output) else { return Ok(None) };
        let stores = crate::backends::prefixes();
        let scheme = scheme_of(address.as_bytes()).unwrap_or_default();
        let Some(store) = stores.iter().find(|store| store.schemes().contains(&scheme)) else {
            let known = stores.iter().flat_map(|store| store.schemes()).map(|scheme| format!("{scheme}://")).collect();
            return Err(EmbedError::OutputStore { output: self.output.clone(), known });
        };
        if Layout::of(&self.output) == Layout::File {
            return Err(EmbedError::OutputFile(self.output.clone()));
        }
        Ok(Some(store.open(address, self.output_settings.as_ref().unwrap_or(&self.store_settings))?))
    }

    fn sink_options(&self, first_index: u64) -> Result<SinkOptions, EmbedError> {
        Ok(SinkOptions {
            prefix: self.prefix()?,
            staging: self.staging.clone(),
            element: self.element,
            part_items: self.part_items,
            first_index,
            shard: self.shard.map(|shard| (shard.index, shard.count)),
            columns: self.columns.clone(),
            settings: self.sink_settings.clone(),
            check: self.check,
            ..SinkOptions::new(&self.output)
        })
    }

    pub(crate) fn config(&self) -> Config {
        Config {
            normalize: self.normalize,
            batch: self.batch,
            workers: self.workers,
            readers: self.readers,
            prefetch: self.prefetch,
            read_ahead_bytes: Config::READ_AHEAD_BYTES,
            trace: self.trace.clone(),
            failures: self.failures,
            max_unreadable: self.max_unreadable,
            commit_every: self.commit_every,
            by_content: self.by_content,
        }
    }

    /// Returns the options that turn an image into the encoder's input.
    pub(crate) fn preprocess(&self, geometry: Geometry) -> PreprocessOptions {
        PreprocessOptions {
            geometry,
            orientation: self.orientation,
            hint: self.decode_scale.hint(&geometry),
            limits: self.limits,
        }
    }
}

fn or_nothing(schemes: &[String]) -> String {
    if schemes.is_empty() { "no store".to_owned() } else { schemes.join(", ") }
}

/// Returns the address of an output in a store (`s3://bucket/vectors/`); `None` for a path.
pub fn store_address(output: &Path) -> Option<&str> {
    output.to_str().filter(|text| scheme_of(text.as_bytes()).is_some())
}

fn or_none(names: &[String]) -> String {
    if names.is_empty() { "none in this build".to_owned() } else { names.join(", ") }
}

fn devices(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|device| !device.is_empty())
}

/// Tells whether the CPU is in a list of devices (`cuda:0,cuda:1`).
pub fn has_cpu(list: &str) -> bool {
    devices(list).any(|device| device == "cpu")
}

/// A job that is ready to run.
pub struct EmbedRun {
    pipeline: Pipeline,
    manifest: RunManifest,
    existing: Existing,
    seeded: bool,
    /// `None` for a sink of the caller's own.
    output: Option<SinkOptions>,
}

/// What an output's place holds before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found {
    /// Nothing.
    Nothing,
    /// An interrupted run of the same job, which has settled the items below this index.
    Unfinished(u64),
    /// This job's complete output.
    Complete,
    /// An output or an interrupted run that the run would replace.
    Replaced,
}

impl EmbedRun {
    /// Returns the manifest that the output will hold.
    pub fn manifest(&self) -> &RunManifest {
        &self.manifest
    }

    /// Tells whether the weights were generated, so that the vectors are meaningless.
    pub fn is_seeded(&self) -> bool {
        self.seeded
    }

    /// Returns the indexes of the run's items, including those of its earlier sessions.
    pub fn inputs(&self) -> Extent {
        self.pipeline.source.extent()
    }

    /// Looks at the output's place as [`Self::run`] does, and leaves an output as it is.
    ///
    /// # Errors
    /// The sink's, if the place holds what the run would refuse to continue or to replace.
    pub fn found(&mut self) -> Result<Found, SinkError> {
        match &self.output {
            Some(output) if foveate_sink::staging::is_begun(output)? => {}
            _ => return Ok(Found::Nothing),
        }
        if self.existing == Existing::Overwrite {
            return Ok(Found::Replaced);
        }
        match self.pipeline.sink.begin(&self.manifest, self.existing) {
            Ok(watermark) => Ok(Found::Unfinished(watermark.index)),
            Err(SinkError::AlreadyComplete(_)) => Ok(Found::Complete),
            Err(error) => Err(error),
        }
    }

    /// Embeds a random sample of the inputs into memory, to measure the job's speed. Failures do not stop it.
    pub fn rehearse(mut self, size: u64, cancel: &Cancel) -> Result<RunReport, RunError> {
        self.pipeline.source = Box::new(Sample::draw(self.pipeline.source, size, 0)?);
        self.pipeline.sink = Box::new(MemorySink::default());
        self.pipeline.config.failures = FailurePolicy::Unlimited;
        self.pipeline.run(&self.manifest, Existing::Refuse, cancel, &Progress::default())
    }

    /// Runs the job; see [`Pipeline::run`].
    pub fn run(self, cancel: &Cancel, progress: &Progress) -> Result<RunReport, RunError> {
        self.pipeline.run(&self.manifest, self.existing, cancel, progress)
    }
}

/// The result of resolving the options.
pub(crate) struct Chosen {
    pub(crate) names: Names,
    pub(crate) model: OpenModel,
    pub(crate) geometry: Geometry,
    pub(crate) preprocessors: PreprocessorOpener,
    pub(crate) encoders: Vec<Box<dyn Encoder>>,
}

impl Chosen {
    pub(crate) fn dim(&self) -> usize {
        self.encoders.first().map_or(0, |encoder| encoder.spec().dim)
    }

    pub(crate) fn description<'a>(&'a self, options: &'a EmbedOptions) -> Description<'a> {
        Description { options, names: &self.names, model: &self.model, geometry: &self.geometry }
    }
}

/// The names of the job's backends, all of them known to exist.
pub(crate) struct Names {
    /// The preprocessor of whole batches that replaces the first decoder and the resizer. Those two process the images
    /// that it cannot.
    pub(crate) batched: Option<String>,
    pub(crate) decoders: Vec<String>,
    pub(crate) resizer: String,
    pub(crate) encoder: String,
}

impl Names {
    fn choose(options: &EmbedOptions, backends: &Backends) -> Result<Self, EmbedError> {
        let Backends { decoders, resizers, encoders, .. } = backends;
        let batched = options.decoder.as_ref().filter(|name| backends.is_batched(name));
        if let (None, Some(setting)) = (batched, options.decoder_settings.keys().next()) {
            return Err(EmbedError::DecoderSetting(setting.clone()));
        }
        if options.decode_scale != DecodeScale::Exact {
            let able = backends.decoders_at(options.decode_scale);
            let decoder = options
                .decoder
                .clone()
                .map_or_else(|| name_or_first(decoders, able.first().map(String::as_str)), Ok)?;
            if !able.contains(&decoder) {
                return Err(EmbedError::DecodeScale { decoder, scale: options.decode_scale, able });
            }
        }
        Ok(Self {
            batched: batched
                .map(|name| backends.preprocessors.get(name))
                .transpose()?
                .map(|found| found.name().to_owned()),
            decoders: preferred_first(decoders, options.preferred_decoder(backends).as_deref())?,
            resizer: name_or_first(resizers, options.resizer.as_deref())?,
            encoder: name_or_first(encoders, options.encoder.as_deref())?,
        })
    }
}

fn name_or_first<B: Backend>(registry: &foveate_core::Registry<B>, name: Option<&str>) -> Result<String, EmbedError> {
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

fn sink_for(output: &Path, sinks: &SinkRegistry) -> Result<String, EmbedError> {
    if Layout::of(output) == Layout::Folder {
        return name_or_first(sinks, None);
    }
    let by_extension = sinks.iter().find(|sink| has_extension(output, sink));
    by_extension.map(|sink| sink.name().to_owned()).ok_or_else(|| {
        let extension = output.extension().unwrap_or_default().to_string_lossy().into_owned();
        let known = sinks.iter().map(|sink| format!(".{}", sink.extension())).collect();
        EmbedError::Extension { extension, known }
    })
}

/// Tells whether the name promises the format of another sink.
fn is_of_another(output: &Path, sink: &SinkBackend, sinks: &SinkRegistry) -> bool {
    !has_extension(output, sink) && sinks.iter().any(|other| has_extension(output, other))
}

fn has_extension(output: &Path, sink: &SinkBackend) -> bool {
    output.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(sink.extension()))
}

/// Everything that the manifest records.
pub(crate) struct Description<'a> {
    options: &'a EmbedOptions,
    names: &'a Names,
    model: &'a OpenModel,
    geometry: &'a Geometry,
}

impl Description<'_> {
    /// Builds the manifest. Everything that decides the output's bytes is in the fingerprint, the rest in `info`.
    fn manifest(&self, source: &dyn Source) -> RunManifest {
        let options = self.options;
        let mut manifest = self.embedding();
        let mut set = |name: &str, value: String| manifest.fingerprint.insert(name.to_owned(), value);
        set(RunManifest::LISTING, source.listing_hash());
        set(RunManifest::ITEMS, source.part());
        for (name, column) in [("image_column", &options.image_column), ("id_column", &options.id_column)] {
            if let Some(column) = column {
                set(name, column.clone());
            }
        }
        set("shard", options.shard.map_or_else(|| "none".to_owned(), |shard| shard.to_string()));
        set("max_bytes", options.max_bytes.to_string());
        manifest
    }

    /// Builds the same manifest without the inputs.
    pub(crate) fn embedding(&self) -> RunManifest {
        let Self { options, names, model, geometry } = self;
        let preprocess = model.preprocess();
        let mut fingerprint = BTreeMap::new();
        let mut set = |name: &str, value: String| fingerprint.insert(name.to_owned(), value);
        set("foveate", crate::VERSION.to_owned());
        set("model", model.name().to_owned());
        set("weights_sha256", model.weights_hash().to_owned());
        set("recipe", options.recipe.name().to_owned());
        set("geometry", recipe::describe(geometry));
        set("mean", format!("{:?}", preprocess.mean));
        set("std", format!("{:?}", preprocess.std));
        set("orientation", orientation_name(options.orientation).to_owned());
        let decoders: Vec<_> = names.batched.iter().chain(&names.decoders).map(String::as_str).collect();
        set("decoder", decoders.join(","));
        set("decode_scale", options.decode_scale.name().to_owned());
        set("allow_truncated", options.decoding.allow_truncated.to_string());
        set("max_pixels", options.limits.max_pixels.to_string());
        set("resizer", names.resizer.clone());
        set("encoder", names.encoder.clone());
        for (name, value) in &options.encoder_settings {
            set(&format!("encoder.{name}"), value.clone());
        }
        for (name, value) in &options.decoder_settings {
            set(&format!("decoder.{name}"), value.clone());
        }
        set("device", options.kind_of_devices());
        set("dtype", options.dtype.name().to_owned());
        set("pooling", options.pooling.name().to_owned());
        set("normalize", normalize_name(options.normalize).to_owned());
        let mut info = BTreeMap::new();
        if let Some(revision) = model.revision() {
            info.insert("model_revision".to_owned(), revision.to_owned());
        }
        if model.is_seeded() {
            info.insert("warning".to_owned(), "seeded weights: the vectors have no meaning".to_owned());
        }
        RunManifest { dim: 0, fingerprint, info }
    }
}

fn orientation_name(policy: OrientationPolicy) -> &'static str {
    match policy {
        OrientationPolicy::Apply => "apply",
        OrientationPolicy::Ignore => "ignore",
    }
}

fn normalize_name(normalize: Normalize) -> &'static str {
    match normalize {
        Normalize::Off => "off",
        Normalize::L2 => "l2",
    }
}

/// Why a job cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// A backend that this build does not contain.
    #[error(transparent)]
    UnknownBackend(#[from] UnknownBackend),
    /// A build without any backend of a kind.
    #[error("this build has no {0} at all; rebuild with the default features")]
    NoBackend(&'static str),
    /// The model cannot be opened.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The inputs cannot be listed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The encoder cannot be started.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The decoder or the resizer cannot be opened.
    #[error(transparent)]
    Preprocess(#[from] PreprocessError),
    /// The output cannot be opened.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// Shards of another number in the same place.
    #[error("cannot write shard {shard} beside {}, which is of another number of shards", .file.display())]
    ShardCount {
        /// This run's shard.
        shard: Shard,
        /// A file of the other run.
        file: PathBuf,
    },
    /// A list of devices that names none.
    #[error("'{0}' names no device")]
    NoDevice(String),
    /// A device that the encoder does not have on this machine.
    #[error("device {device} unavailable: encoder {encoder} runs on {}", .has.join(", "))]
    Device {
        /// The device asked for.
        device: String,
        /// The encoder that would have run there.
        encoder: String,
        /// The devices that it has.
        has: Vec<String>,
    },
    /// No sink of this build writes files of the output's extension.
    #[error("no sink writes '.{extension}' files; compiled in: {}", .known.join(", "))]
    Extension {
        /// The output's extension.
        extension: String,
        /// The extensions that sinks have, each with its dot.
        known: Vec<String>,
    },
    /// An output in a store that this build does not have, or that cannot be written.
    #[error("cannot write to {}: this build can write to {}", .output.display(), or_nothing(.known))]
    OutputStore {
        /// The output.
        output: PathBuf,
        /// What it could begin with.
        known: Vec<String>,
    },
    /// A single file as an output in a store.
    #[error("cannot write {}: an output in a store is a prefix with part files", .0.display())]
    OutputFile(PathBuf),
    /// A sink that cannot store the columns that are asked for.
    #[error("sink {sink} cannot store columns; {} can", or_none(.able))]
    NoColumns {
        /// The sink.
        sink: String,
        /// The compiled-in sinks that can.
        able: Vec<String>,
    },
    /// An output whose name promises another format than its sink writes.
    #[error("cannot write {} with sink {sink}, whose files end in .{extension}", .output.display())]
    OtherFormat {
        /// The output.
        output: PathBuf,
        /// The sink asked for.
        sink: String,
        /// Its extension.
        extension: &'static str,
    },
    /// A scale at which the decoder cannot decode.
    #[error("decoder {decoder} cannot decode at scale '{scale}', {} can; use one of these, or `exact` as scale", or_none(.able))]
    DecodeScale {
        /// The decoder.
        decoder: String,
        /// The scale asked for.
        scale: DecodeScale,
        /// The compiled-in decoders that can.
        able: Vec<String>,
    },
    /// A setting for a decoder that has none.
    #[error("decoder setting '{0}': this decoder has no settings")]
    DecoderSetting(String),
    /// The model's preprocessing settings cannot be applied.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
}
