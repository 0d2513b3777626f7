//! This build's backends as the lab's rig, so that its experiments measure what a job would run.

use std::collections::BTreeMap;
use std::sync::Arc;

use foveate_core::{Backend, Health, Registry, error_chain};
use foveate_decode::{DecodeError, Decoder};
use foveate_encode::{DType, EncodeError, Encoder, EncoderBackend};
use foveate_lab::{Candidate, Context, Memory, Setting, StoreOpener};
use foveate_model::{Model, OpenOptions};
use foveate_pipeline::Config;
use foveate_preprocess::{DecoderOpener, PreprocessOptions, PreprocessorOpener, ResizerOpener};
use foveate_resize::{Geometry, ResizeError, Resizer};
use foveate_sink::{SinkError, SinkOptions, VectorSink};
use foveate_source::store::StoreOptions;
use foveate_source::{Input, Source, SourceError};

use crate::collect::Sample;
use crate::embed::{AheadSettings, Backends, EmbedError, InputSettings, Settings};
use crate::models::OpenModel;
use crate::{Recipe, RecipeError};

/// Backends, a model, and the photos to measure with.
pub struct Rig {
    options: Settings,
    backends: Arc<Backends>,
    model: OpenModel,
    geometries: BTreeMap<&'static str, Geometry>,
    base: Setting,
    sample: Sample,
    context: Context,
    measure_memory: Option<MeasureMemory>,
}

/// Measures the memory of a process that runs the setting's forward and nothing else.
pub type MeasureMemory = Box<dyn Fn(&Setting) -> Result<Memory, String> + Send + Sync>;

impl Rig {
    /// Opens the job of `options` on at most `photos` photos drawn at random from `source`. The same `seed` draws the
    /// same photos. Loads the model, and writes nothing.
    ///
    /// # Errors
    /// [`EmbedError`]: the same errors as for a job with these options.
    pub fn new(
        options: Settings,
        source: Box<dyn Source>,
        (photos, seed): (u64, u64),
        backends: Arc<Backends>,
        model: &OpenOptions<'_>,
    ) -> Result<Self, EmbedError> {
        let options = on_one_device(options);
        let sample = Sample::draw(source, photos, seed)?;
        let (mut names, model) = options.choose(&backends, model)?;
        let mut geometries = BTreeMap::new();
        for recipe in Recipe::ALL {
            geometries.insert(recipe.name(), recipe.geometry(model.preprocess())?);
        }
        let base = Setting {
            decoder: names.batched.unwrap_or_else(|| names.decoders.swap_remove(0)),
            scale: options.model.decode_scale(),
            resizer: names.resizer,
            recipe: options.model.network.preprocess.name().to_owned(),
            encoder: names.encoder,
            dtype: options.model.dtype(),
            batch: options.engine.batch,
            workers: options.workers(),
            readers: options.ahead.readers,
            threads: options.threads(),
            prefetch: options.ahead.prefetch,
            requests: options.inputs.requests,
        };
        let context = context(&options, &backends, seed);
        Ok(Self { options, backends, model, geometries, base, sample, context, measure_memory: None })
    }

    /// Sets how the memory of a forward is measured, which takes a program that starts itself.
    #[must_use]
    pub fn measuring_memory(self, measure: MeasureMemory) -> Self {
        Self { measure_memory: Some(measure), ..self }
    }

    /// Returns the options of a job with this setting.
    ///
    /// # Errors
    /// Fails if the setting's recipe does not exist.
    pub fn options(&self, setting: &Setting) -> Result<Settings, RecipeError> {
        with_setting(&self.options, setting)
    }

    /// Does the same, with the base's recipe for an unknown one, which no run gets to.
    fn job(&self, setting: &Setting) -> Settings {
        self.options(setting).unwrap_or_else(|_| self.options.clone())
    }

    /// Returns the recipe's geometry, for an unknown one the model's own.
    fn geometry(&self, setting: &Setting) -> Geometry {
        *self.geometries.get(setting.recipe.as_str()).unwrap_or(&self.geometries[Recipe::Hf.name()])
    }

    fn open_encoder_on(&self, device: &str, setting: &Setting) -> Result<Box<dyn Encoder>, EncodeError> {
        let mut options = self.options(setting).map_err(|error| EncodeError::Unsupported(error_chain(&error)))?;
        options.engine.device = device.to_owned();
        let opened = options.open_encoders(
            &setting.encoder,
            &self.model,
            self.geometry(setting).format().sample,
            &self.backends,
        );
        let mut encoders = opened.map_err(|error| match error {
            EmbedError::Encode(error) => error,
            other => EncodeError::Unsupported(error_chain(&other)),
        })?;
        encoders.pop().ok_or_else(|| EncodeError::Unsupported("an experiment without a device".to_owned()))
    }

    fn takes(&self, backend: &EncoderBackend<Model>) -> bool {
        self.model.is_taken_by(backend)
    }
}

impl foveate_lab::Rig for Rig {
    fn base(&self) -> Setting {
        self.base.clone()
    }

    fn context(&self) -> Context {
        self.context.clone()
    }

    fn photos(&self) -> Result<Box<dyn Source>, SourceError> {
        Ok(Box::new(self.sample.clone()))
    }

    fn list(&self, inputs: Vec<Input>) -> Result<Box<dyn Source>, SourceError> {
        let mut options = Settings { shard: None, ..self.options.clone() };
        options.inputs = InputSettings { inputs, from_list: Vec::new(), limit: None, ..options.inputs };
        Ok(Box::new(options.list(|_| ())?))
    }

    fn store_opener(&self, scheme: &str) -> StoreOpener {
        let (options, scheme) = (self.options.store_options(), scheme.to_owned());
        Arc::new(move |requests| {
            let stores = crate::backends::stores();
            let backend = stores.iter().find(|backend| backend.schemes().contains(&scheme.as_str()));
            let unknown = || SourceError::Invalid(format!("no store has {scheme}:// addresses"));
            backend.ok_or_else(unknown)?.open(&StoreOptions { requests, ..options.clone() })
        })
    }

    fn decoders(&self) -> Vec<Candidate> {
        candidates(&self.backends.decoders, &self.base.decoder, |_| true)
    }

    fn batched_decoders(&self) -> Vec<Candidate> {
        candidates(&self.backends.preprocessors, "", |_| true)
    }

    fn resizers(&self) -> Vec<Candidate> {
        candidates(&self.backends.resizers, &self.base.resizer, |_| true)
    }

    fn encoders(&self) -> Vec<Candidate> {
        candidates(&self.backends.encoders, &self.base.encoder, |backend| self.takes(backend))
    }

    fn sinks(&self) -> Vec<Candidate> {
        candidates(&self.backends.sinks, "", |_| true)
    }

    fn open_decoder(&self, name: &str) -> Result<Box<dyn Decoder>, DecodeError> {
        let unavailable = |error: foveate_core::UnknownBackend| DecodeError::Unavailable(error.into());
        self.backends.decoders.get(name).map_err(unavailable)?.open(&self.options.decoding())
    }

    fn decoder_opener(&self, setting: &Setting) -> DecoderOpener {
        // The usual decoder is the fallback of a backend that works on whole batches.
        let name = Some(setting.decoder.clone()).filter(|name| !self.backends.is_batched(name));
        self.options.decoder_opener(name, &self.backends)
    }

    fn open_resizer(&self, name: &str) -> Result<Box<dyn Resizer>, ResizeError> {
        self.backends.open_resizer(Some(name))
    }

    fn resizer_opener(&self, setting: &Setting) -> ResizerOpener {
        self.options.resizer_opener(Some(setting.resizer.clone()), &self.backends)
    }

    fn open_encoder(&self, setting: &Setting) -> Result<Box<dyn Encoder>, EncodeError> {
        self.open_encoder_on(&self.options.engine.device, setting)
    }

    fn setting_on_cpu(&self, setting: &Setting) -> Setting {
        let usual = self.backends.encoders.iter().find(|backend| self.takes(backend));
        let encoder = usual.map_or_else(|| self.base.encoder.clone(), |backend| backend.name().to_owned());
        Setting { encoder, dtype: DType::F32, threads: self.context.cores, ..setting.clone() }
    }

    fn open_on_cpu(&self, setting: &Setting) -> Result<Box<dyn Encoder>, EncodeError> {
        self.open_encoder_on("cpu", setting)
    }

    fn model_for_peers(&self) -> Result<(String, Vec<u8>), EncodeError> {
        Ok((self.options.model.network.model.clone(), self.model.to_onnx(self.options.model.pooling(&self.model))?))
    }

    fn memory_of_forward(&self, setting: &Setting) -> Result<Memory, String> {
        let measure = self.measure_memory.as_ref().ok_or("only the program foveate measures it")?;
        measure(setting)
    }

    fn open_sink(&self, name: &str, options: &SinkOptions) -> Result<Box<dyn VectorSink>, SinkError> {
        let path = options.output.clone();
        let unknown = |error: foveate_core::UnknownBackend| SinkError::BadOutput { path, source: error.into() };
        self.backends.sinks.get(name).map_err(unknown)?.open(options)
    }

    fn preprocessors(&self, setting: &Setting) -> PreprocessorOpener {
        let batched = Some(setting.decoder.as_str()).filter(|name| self.backends.is_batched(name));
        let (decoder, resizer) = (self.decoder_opener(setting), self.resizer_opener(setting));
        self.job(setting).preprocessors(batched, decoder, resizer, self.preprocess(setting), &self.backends)
    }

    fn preprocess(&self, setting: &Setting) -> PreprocessOptions {
        // A setting's recipe is the base's, or one that experiments know by name.
        self.job(setting).preprocess(self.geometry(setting))
    }

    fn config(&self, setting: &Setting) -> Config {
        self.job(setting).config()
    }
}

/// Returns the options of an experiment, which uses one device: the first that is named.
pub fn on_one_device(mut options: Settings) -> Settings {
    let first = options.devices().next().unwrap_or_default().to_owned();
    options.engine.device = first;
    options
}

/// Returns `options` with a setting in place of their own.
///
/// # Errors
/// Fails if the setting's recipe does not exist.
pub fn with_setting(options: &Settings, setting: &Setting) -> Result<Settings, RecipeError> {
    let mut options = options.clone();
    options.model.network.preprocess = setting.recipe.parse()?;
    options.model.decoder = Some(setting.decoder.clone());
    options.model.decode_scale = Some(setting.scale);
    options.model.resizer = Some(setting.resizer.clone());
    options.model.encoder = Some(setting.encoder.clone());
    options.model.dtype = Some(setting.dtype);
    options.engine.batch = setting.batch;
    options.engine.workers = Some(setting.workers);
    options.engine.threads = Some(setting.threads);
    options.ahead = AheadSettings { readers: setting.readers, prefetch: setting.prefetch };
    options.inputs.requests = setting.requests;
    Ok(options)
}

/// Returns the backends of a registry that `wanted` accepts, with the one called `first` before the others.
fn candidates<B: Backend>(registry: &Registry<B>, first: &str, wanted: impl Fn(&B) -> bool) -> Vec<Candidate> {
    let candidate = |backend: &B| {
        let health = backend.health();
        Candidate {
            name: backend.name().to_owned(),
            library: library(&health),
            problem: health.problem.map(|problem| format!("{}; {}", problem.cause, problem.remedy)),
        }
    };
    let mut all: Vec<Candidate> = registry.iter().filter(|backend| wanted(backend)).map(candidate).collect();
    all.sort_by_key(|candidate| candidate.name != first);
    all
}

/// Returns the library that a backend reports, without its path on this machine.
fn library(health: &Health) -> String {
    let said = health.library.as_deref().unwrap_or("all Rust");
    said.split(", ").filter(|part| !part.contains('/')).collect::<Vec<_>>().join(", ")
}

fn context(options: &Settings, backends: &Backends, seed: u64) -> Context {
    let mut libraries = BTreeMap::new();
    let mut add = |name: &str, health: Health| {
        libraries.entry(name.to_owned()).or_insert_with(|| library(&health));
    };
    backends.decoders.iter().for_each(|backend| add(backend.name(), backend.health()));
    backends.resizers.iter().for_each(|backend| add(backend.name(), backend.health()));
    backends.encoders.iter().for_each(|backend| add(backend.name(), backend.health()));
    backends.sinks.iter().for_each(|backend| add(backend.name(), backend.health()));
    let libraries_of = |(name, library): (&String, &String)| format!("{name}: {library}");
    let native = libraries.iter().filter(|(_, library)| *library != "all Rust");
    Context {
        // The folder's path on this machine is private.
        model: options.model.network.model.rsplit('/').next().map_or_else(String::new, str::to_owned),
        device: options.engine.device.clone(),
        host: processor(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        foveate: crate::VERSION.to_owned(),
        commit: String::new(),
        features: libraries.keys().cloned().collect::<Vec<_>>().join(" "),
        libraries: native.map(libraries_of).collect::<Vec<_>>().join("; "),
        date: chrono::Utc::now().format("%Y-%m-%dT%H:%MZ").to_string(),
        effort: "full".to_owned(),
        seed,
    }
}

/// Returns the processor's name as the system reports it, if it does.
pub fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(std::env::consts::ARCH);
    name.trim_start_matches([' ', '\t', ':']).to_owned()
}
