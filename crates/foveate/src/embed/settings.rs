//! The settings of a job, each stated once: as fields for programs, and as options of the command line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use foveate_core::{PixelBudget, PixelLimits, SampleType};
use foveate_decode::DecoderOptions;
use foveate_encode::{DType, EncoderOptions, Pooling};
use foveate_pipeline::lane::Normalize;
use foveate_pipeline::{Config, FailurePolicy};
use foveate_preprocess::{OrientationPolicy, PreprocessOptions};
use foveate_profile::Trace;
use foveate_resize::Geometry;
use foveate_sink::{Element, Existing, SinkOptions};
use foveate_source::store::{StoreOptions, WebHeaders};
use foveate_source::{Input, NameFilter, Separator};

use crate::models::OpenModel;
#[cfg(feature = "cli")]
use crate::values::{input, one_of, parse_count, parse_glob, parse_positive, parse_setting};
use crate::{DecodeScale, Recipe, Shard};

/// The inputs, the backends and the settings of a job. A backend that is not named is the first one compiled in.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The images.
    pub inputs: InputSettings,
    /// The lists, and what rows have besides vectors.
    pub rows: RowSettings,
    /// The settings that decide the vectors.
    pub model: ModelSettings,
    /// The treatment of unusual images, which decides vectors too.
    pub images: ImageSettings,
    /// The settings that decide the throughput.
    pub engine: EngineSettings,
    /// The queues between the threads.
    pub ahead: AheadSettings,
    /// The storage of vectors.
    pub storage: StorageSettings,
    /// The cache of vectors from run to run.
    pub cache: CacheSettings,
    /// Path of the output, or the address of a prefix in a store; its extension, or the sink, decides the format.
    pub output: PathBuf,
    /// Settings specific to the store of an output, by name; `None` for those of the inputs.
    pub output_settings: Option<Vec<(String, String)>>,
    /// The folder for files on their way to a store; `None` for the system's folder of temporary files.
    pub staging: Option<PathBuf>,
    /// The action if the output already exists.
    pub existing: Existing,
    /// Items of the source that one part covers.
    pub part_items: u64,
    /// The part of the inputs that this run processes.
    pub shard: Option<Shard>,
    /// Longest time for one object of a store, with all attempts; see [`StoreOptions::deadline`].
    pub deadline: Option<Duration>,
    /// The trace that records every span, for a timeline.
    pub trace: Option<Trace>,
    /// The number of failures that stops a run.
    pub failures: FailurePolicy,
    /// The CSV file (`id,change`) that an update writes, with a line for each input that it does not keep as it is.
    pub changes_file: Option<PathBuf>,
    /// The most inputs that an update may remove from the output. A limit that allows all of them turns off the check
    /// for folders that became empty, too.
    pub max_removed: FailurePolicy,
    /// Maximum unreadable inputs in a row; see [`Config::max_unreadable`].
    pub max_unreadable: Option<u64>,
    /// Interval between commits, which make finished rows durable.
    pub commit_every: Duration,
    /// True if the inputs of an output that is already complete are compared by hash, not by size and time.
    pub by_content: bool,
    /// Most memory for the vectors of recent contents; see [`Config::recent_bytes`].
    pub recent_bytes: u64,
    /// True if the contents of an output that is already complete are compared with their hashes.
    pub check: bool,
}

/// The images.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Inputs"))]
pub struct InputSettings {
    /// Files, folders (searched recursively, sorted), globs and ranges (`'{00..99}.tar'`; quote them), containers of
    /// images (tar, zip, Parquet) and addresses (`s3://bucket/prefix/`), in any mixture; `-` is a tar on standard
    /// input.
    #[cfg_attr(feature = "cli", arg(value_name = "INPUT", required_unless_present = "from_list", value_parser = input()))]
    pub inputs: Vec<Input>,

    /// A file with one path per line, read after the INPUTs; `-` is standard input. A listed path that does not exist
    /// is one recorded failure.
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE"))]
    pub from_list: Vec<PathBuf>,

    /// Process only the first N images. With `--shard`, each shard takes its share of N.
    #[cfg_attr(feature = "cli", arg(long, value_name = "N"))]
    pub limit: Option<u64>,

    /// Refuse files larger than this (`256M`).
    #[cfg_attr(feature = "cli", arg(long, value_name = "BYTES", default_value_t = Self::default().max_bytes, value_parser = parse_count, hide = true))]
    pub max_bytes: u64,

    /// The column of a Parquet or Arrow file that holds the images. Default: the only one that looks so.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub image_column: Option<String>,

    /// Leave out files, folders and containers' members that match: a name at any depth (`'*_small.jpg'`), or a path
    /// with a slash (`2023/raw`). Case does not matter. Repeatable.
    #[cfg_attr(feature = "cli", arg(long, value_name = "GLOB", value_parser = parse_glob))]
    pub exclude: Vec<String>,

    /// Take only what matches, in the same form. A name of what is left out by default (`@eaDir`, `.thumbnails`) takes
    /// that back instead. Repeatable.
    #[cfg_attr(feature = "cli", arg(long, value_name = "GLOB", value_parser = parse_glob))]
    pub include: Vec<String>,

    /// A setting that only this store has, such as `endpoint=URL` of `s3`. Repeatable.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME=VALUE", value_parser = parse_setting))]
    pub store_option: Vec<(String, String)>,

    /// Requests to web servers.
    #[cfg_attr(feature = "cli", command(flatten))]
    pub web: WebSettings,

    /// Objects of a store that are requested at a time.
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value_t = Self::default().requests,
                                    value_parser = parse_positive, help_heading = "Engine", hide = true))]
    pub requests: usize,
}

/// The lists of a job, and what its rows have besides vectors.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Inputs"))]
pub struct RowSettings {
    /// The lists' paths end in NUL, not at the line's end (`find -print0`).
    #[cfg_attr(
        feature = "cli",
        arg(short = '0', long, requires = "from_list", conflicts_with = "path_column", hide = true)
    )]
    pub null: bool,

    /// The lists are CSV files with a header, and this column has the paths.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME", requires = "from_list"))]
    pub path_column: Option<String>,

    /// Refuse inputs whose paths take more than this; they are kept in a temporary file.
    #[cfg_attr(feature = "cli", arg(long, value_name = "BYTES", default_value_t = Self::default().max_listing, value_parser = parse_count, hide = true))]
    pub max_listing: u64,

    /// Keep the listing in FILE, or take it from there, for runs that continue and other shards.
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE", hide = true))]
    pub listing: Option<PathBuf>,

    /// Fields of containers' members that become columns of the output (`caption,url`).
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME,…", value_delimiter = ','))]
    pub columns: Vec<String>,

    /// The column of a Parquet or Arrow file, or the field of a tar's JSON, that holds the ids. Default: the
    /// container's name, and the row's number or the member's name.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub id_column: Option<String>,
}

/// Requests to web servers. `Debug` does not show the headers' values, which may be secrets.
#[derive(Clone)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Inputs"))]
pub struct WebSettings {
    /// A header of each request to a web server, such as `User-Agent=…`, `Referer=…` or `Authorization=Bearer …`. No
    /// output, log or message shows its value. Repeatable.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME=VALUE", value_parser = parse_setting))]
    pub http_header: Vec<(String, String)>,

    /// Most redirects that an address of the web is followed over.
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value_t = Self::default().max_redirects, hide = true))]
    pub max_redirects: u32,
}

/// The settings that decide the vectors.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Model"))]
pub struct ModelSettings {
    /// The model and its input.
    #[cfg_attr(feature = "cli", command(flatten))]
    pub network: NetworkSettings,

    /// How tokens become one vector. Default: the model's own way, as `foveate models` shows it.
    #[cfg_attr(feature = "cli", arg(long, value_parser = one_of(&Pooling::ALL, Pooling::name)))]
    pub pooling: Option<Pooling>,

    /// Scale each vector to unit length.
    #[cfg_attr(feature = "cli", arg(long, default_value = Self::default().normalize.name(), value_parser = one_of(&Normalize::ALL, Normalize::name)))]
    pub normalize: Normalize,

    /// Precision of the forward. Default: f32, which takes a GPU about ten times as long as f16 or bf16.
    #[cfg_attr(feature = "cli", arg(long, value_parser = one_of(&DType::ALL, DType::name)))]
    pub dtype: Option<DType>,

    /// Preferred decoder (see `foveate backends`); the others decode the formats that it cannot read.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME", help_heading = "Engine"))]
    pub decoder: Option<String>,

    /// Decode JPEGs at their full size (`exact`), at a fraction of it (`fast`), or only the frequencies that the
    /// fraction shows (`low`, with the decoder `exact`). The last two are faster and change the vectors of JPEGs that
    /// are at least twice as large as the model resizes them to; smaller ones are decoded at full size.
    /// `foveate verify` measures how much. Default: exact; for `verify`, fast.
    #[cfg_attr(feature = "cli", arg(long, value_name = "exact|fast|low", help_heading = "Engine"))]
    pub decode_scale: Option<DecodeScale>,

    /// Resizer.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME", help_heading = "Engine"))]
    pub resizer: Option<String>,

    /// Encoder.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME", help_heading = "Engine"))]
    pub encoder: Option<String>,

    /// A setting that only this encoder has, such as `optimization=basic` of `ort` (see its README). Repeatable.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME=VALUE", value_parser = parse_setting, help_heading = "Engine", hide = true))]
    pub encoder_option: Vec<(String, String)>,

    /// A setting that only this decoder has, such as `backend=hardware` of `nvjpeg`. Repeatable.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME=VALUE", value_parser = parse_setting, help_heading = "Engine", hide = true))]
    pub decoder_option: Vec<(String, String)>,
}

/// The treatment of unusual images.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Inputs"))]
pub struct ImageSettings {
    /// Whether EXIF orientation is applied before anything else.
    #[cfg_attr(feature = "cli", arg(long, default_value = Self::default().orientation.name(), hide = true, help_heading = "Model",
                                    value_parser = one_of(&OrientationPolicy::ALL, OrientationPolicy::name)))]
    pub orientation: OrientationPolicy,

    /// Accept truncated files, with the part that can be decoded: JPEG, PNG, GIF, and uncompressed BMP and TIFF.
    #[cfg_attr(feature = "cli", arg(long))]
    pub allow_truncated: bool,
}

/// The model and its input.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Model"))]
pub struct NetworkSettings {
    /// A card's name (see `foveate models`), a Hugging Face repository `org/name[@revision]`, a folder in Hugging
    /// Face layout, or `seeded:<card>` for generated weights (no network; vectors without meaning).
    #[cfg_attr(feature = "cli", arg(short, long, default_value_t = Self::default().model))]
    pub model: String,

    /// Preprocessing: the model's own recipe (`hf`), or stretching to the input size (`squash`). The two give different
    /// embeddings.
    #[cfg_attr(feature = "cli", arg(long, default_value = Self::default().preprocess.name(), value_parser = one_of(&Recipe::ALL, Recipe::name)))]
    pub preprocess: Recipe,

    /// Refuse images with more pixels than this (`100M`, `2G`), before memory is allocated for them.
    #[cfg_attr(feature = "cli", arg(long, value_name = "PIXELS", default_value_t = Self::default().max_pixels, value_parser = parse_count,
                                    help_heading = "Inputs", hide = true))]
    pub max_pixels: u64,
}

/// The settings that decide the throughput.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Engine"))]
pub struct EngineSettings {
    /// Device of the forward: `cpu`, `cuda:0`, or several that share the batches (`cuda:0,cuda:1`). A device that is
    /// named twice works on two batches at once. There is no silent fallback.
    #[cfg_attr(feature = "cli", arg(long, value_name = "DEVICE,…", default_value_t = Self::default().device, help_heading = "Model"))]
    pub device: String,

    /// Images per batch.
    #[cfg_attr(feature = "cli", arg(short, long, value_name = "N", default_value_t = Self::default().batch, value_parser = parse_positive))]
    pub batch: usize,

    /// Threads that decode and resize; 0 runs every stage in turn on one thread. Default: a quarter of the cores if the
    /// forward runs on the CPU, otherwise all cores.
    #[cfg_attr(feature = "cli", arg(short, long, value_name = "N"))]
    pub workers: Option<usize>,

    /// Threads of the forward on a CPU. Default: all cores.
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", value_parser = parse_positive))]
    pub threads: Option<usize>,

    /// Most memory for large images while they are decoded, of all workers together (`4G`). Images that need more wait
    /// for each other.
    #[cfg_attr(feature = "cli", arg(long, value_name = "BYTES", default_value_t = Self::default().pixel_memory, value_parser = parse_count,
                                    hide = true))]
    pub pixel_memory: u64,
}

/// The queues between the threads.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Engine"))]
pub struct AheadSettings {
    /// Threads that read files.
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value_t = Self::default().readers, value_parser = parse_positive, hide = true))]
    pub readers: usize,

    /// Full batches queued for the encoder.
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value_t = Self::default().prefetch, value_parser = parse_positive, hide = true))]
    pub prefetch: usize,
}

/// The cache of vectors.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Engine"))]
pub struct CacheSettings {
    /// Keep vectors in this folder, by the image's bytes and the settings. An image that is there is not computed.
    /// Processes on one machine share the folder.
    #[cfg_attr(feature = "cli", arg(long, value_name = "DIR"))]
    pub cache: Option<PathBuf>,

    /// Most bytes of the cache; the least recently used vectors go first.
    #[cfg_attr(feature = "cli", arg(long, value_name = "BYTES", default_value_t = Self::default().cache_size, value_parser = parse_count,
                                    requires = "cache", hide = true))]
    pub cache_size: u64,
}

/// The storage of vectors.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Output"))]
pub struct StorageSettings {
    /// How vectors are stored.
    #[cfg_attr(feature = "cli", arg(long, default_value = Self::default().out_dtype.name(), value_parser = one_of(&Element::ALL, Element::name)))]
    pub out_dtype: Element,

    /// Output format, for a folder or an unusual extension. Default: by the extension; for a folder, the first sink of
    /// `foveate backends`.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME", requires = "output"))]
    pub sink: Option<String>,

    /// A setting that only this format has, such as `compression=lz4` of `parquet` (see its README). Repeatable.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME=VALUE", value_parser = parse_setting, requires = "output"))]
    pub sink_option: Vec<(String, String)>,
}

impl Default for InputSettings {
    fn default() -> Self {
        Self {
            inputs: Vec::new(),
            from_list: Vec::new(),
            limit: None,
            max_bytes: 256_000_000,
            image_column: None,
            exclude: Vec::new(),
            include: Vec::new(),
            store_option: Vec::new(),
            web: WebSettings::default(),
            requests: StoreOptions::DEFAULT_REQUESTS,
        }
    }
}

impl Default for RowSettings {
    fn default() -> Self {
        Self {
            null: false,
            path_column: None,
            max_listing: foveate_source::DEFAULT_MAX_LISTING,
            listing: None,
            columns: Vec::new(),
            id_column: None,
        }
    }
}

impl Default for WebSettings {
    fn default() -> Self {
        Self { http_header: Vec::new(), max_redirects: StoreOptions::DEFAULT_REDIRECTS }
    }
}

impl Default for NetworkSettings {
    fn default() -> Self {
        let max_pixels = PixelLimits::DEFAULT.max_pixels;
        Self { model: "facebook/dinov2-small".to_owned(), preprocess: Recipe::default(), max_pixels }
    }
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            device: "cpu".to_owned(),
            batch: 32,
            workers: None,
            threads: None,
            pixel_memory: PixelBudget::DEFAULT_BYTES,
        }
    }
}

impl Default for AheadSettings {
    fn default() -> Self {
        Self { readers: 2, prefetch: 1 }
    }
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self { cache: None, cache_size: 10_000_000_000 }
    }
}

impl fmt::Debug for WebSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { max_redirects, .. } = self;
        f.debug_struct("WebSettings").field("headers", &self.headers()).field("max_redirects", max_redirects).finish()
    }
}

impl InputSettings {
    /// Returns the names that count.
    ///
    /// # Panics
    /// If a pattern is not a valid one; the command line refuses such.
    pub fn names(&self) -> NameFilter {
        NameFilter::new(&self.include, &self.exclude).unwrap_or_else(|why| panic!("include, exclude: {why}"))
    }
}

impl WebSettings {
    /// Returns the headers.
    pub fn headers(&self) -> WebHeaders {
        WebHeaders::new(self.http_header.clone())
    }
}

impl ModelSettings {
    /// Returns the precision of the forward.
    pub fn dtype(&self) -> DType {
        self.dtype.unwrap_or_default()
    }

    /// Returns the way in which the tokens of `model` become one vector.
    pub fn pooling(&self, model: &OpenModel) -> Pooling {
        self.pooling.unwrap_or_else(|| model.own_pooling())
    }

    /// Returns whether decoders may downscale.
    pub fn decode_scale(&self) -> DecodeScale {
        self.decode_scale.unwrap_or_default()
    }

    /// Returns the most pixels of an image.
    pub(crate) fn limits(&self) -> PixelLimits {
        PixelLimits { max_pixels: self.network.max_pixels }
    }
}

impl Settings {
    /// Returns the default job: `inputs` through `model` on the CPU in f32 with the `hf` recipe, to `output`.
    pub fn new(inputs: Vec<Input>, model: impl Into<String>, output: impl Into<PathBuf>) -> Self {
        let network = NetworkSettings { model: model.into(), ..NetworkSettings::default() };
        Self {
            inputs: InputSettings { inputs, ..InputSettings::default() },
            rows: RowSettings::default(),
            model: ModelSettings { network, ..ModelSettings::default() },
            images: ImageSettings::default(),
            engine: EngineSettings::default(),
            ahead: AheadSettings::default(),
            storage: StorageSettings::default(),
            cache: CacheSettings::default(),
            output: output.into(),
            output_settings: None,
            staging: None,
            existing: Existing::Resume,
            part_items: SinkOptions::DEFAULT_PART_ITEMS,
            shard: None,
            deadline: None,
            trace: None,
            failures: FailurePolicy::default(),
            changes_file: None,
            max_removed: FailurePolicy::Percent(10.0),
            max_unreadable: Some(Config::MAX_UNREADABLE),
            commit_every: Duration::from_secs(2),
            by_content: false,
            recent_bytes: Config::RECENT_BYTES,
            check: false,
        }
    }

    /// Returns the inputs in the order of the output's rows: those that are named, then the lists.
    pub fn inputs(&self) -> Vec<Input> {
        let mut inputs = self.inputs.inputs.clone();
        for list in &self.inputs.from_list {
            let separator = if self.rows.null { Separator::Nul } else { Separator::Line };
            inputs.push(match &self.rows.path_column {
                Some(column) => Input::Table(list.clone(), column.clone()),
                None => Input::List(list.clone(), separator),
            });
        }
        inputs
    }

    /// Returns the number of threads that decode and resize. The usual number for a forward on the CPU is a quarter of
    /// the cores, elsewhere every core. A decoder that prepares whole batches gets a few: each of its threads has
    /// memory on the device and little to do.
    ///
    /// On a CPU the forward takes nearly all the time, so it gets every core. One decode worker for every four cores
    /// keeps it supplied. That is one thread more than there are cores, for a quarter of the time or less. Taking it
    /// from the forward's threads instead measured half the throughput on two cores (18.5 against 37 images/s).
    pub fn workers(&self) -> usize {
        const BATCHED: usize = 4;
        if let Some(workers) = self.engine.workers {
            return workers;
        }
        let cores = cores();
        let batched = crate::backends::preprocessors();
        if has_cpu(&self.engine.device) {
            cores.div_ceil(4)
        } else if self.model.decoder.as_deref().is_some_and(|name| batched.known().contains(&name)) {
            cores.min(BATCHED)
        } else {
            cores
        }
    }

    /// Returns the number of threads of the forward on a CPU.
    pub fn threads(&self) -> usize {
        self.engine.threads.unwrap_or_else(cores)
    }

    /// Returns the treatment of malformed images.
    pub(crate) fn decoding(&self) -> DecoderOptions {
        DecoderOptions { allow_truncated: self.images.allow_truncated, ..DecoderOptions::default() }
    }

    /// Returns the options that turn an image into the encoder's input.
    pub(crate) fn preprocess(&self, geometry: Geometry) -> PreprocessOptions {
        PreprocessOptions {
            geometry,
            orientation: self.images.orientation,
            hint: self.model.decode_scale().hint(&geometry),
            limits: self.model.limits(),
            budget: PixelBudget::new(self.engine.pixel_memory),
        }
    }

    /// Returns how the inputs' stores are read.
    pub(crate) fn store_options(&self) -> StoreOptions {
        let InputSettings { max_bytes, requests, store_option, web, .. } = &self.inputs;
        StoreOptions {
            max_bytes: *max_bytes,
            requests: *requests,
            deadline: self.deadline,
            headers: web.headers(),
            max_redirects: web.max_redirects,
            settings: by_name(store_option),
            ..StoreOptions::default()
        }
    }

    /// Returns the devices in the order given; a device that is named twice gets two encoders.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &str> {
        devices(&self.engine.device)
    }

    /// Returns the options of one device's encoder of `model`; encoders on the CPU share its threads.
    pub(crate) fn encoder_options(&self, device: &str, model: &OpenModel, sample: SampleType) -> EncoderOptions {
        EncoderOptions {
            pooling: self.model.pooling(model),
            sample,
            dtype: self.model.dtype(),
            device: device.to_owned(),
            max_batch: self.engine.batch,
            threads: (self.threads() / self.devices().count().max(1)).max(1),
            settings: by_name(&self.model.encoder_option),
        }
    }

    /// Returns the part of the device list that affects the output's bytes: neither the number nor the indexes of the
    /// devices.
    pub(crate) fn kind_of_devices(&self) -> String {
        let kinds: BTreeSet<_> = self.devices().map(|device| device.split(':').next().unwrap_or(device)).collect();
        kinds.into_iter().collect::<Vec<_>>().join(",")
    }

    pub(crate) fn config(&self) -> Config {
        Config {
            normalize: self.model.normalize,
            batch: self.engine.batch,
            workers: self.workers(),
            readers: self.ahead.readers,
            prefetch: self.ahead.prefetch,
            read_ahead_bytes: Config::READ_AHEAD_BYTES,
            trace: self.trace.clone(),
            failures: self.failures,
            max_unreadable: self.max_unreadable,
            commit_every: self.commit_every,
            by_content: self.by_content,
            recent_bytes: self.recent_bytes,
            earlier: None,
            cache: None,
        }
    }
}

/// Returns a backend's settings by name.
pub(crate) fn by_name(settings: &[(String, String)]) -> BTreeMap<String, String> {
    settings.iter().cloned().collect()
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn devices(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|device| !device.is_empty())
}

/// Returns true if the CPU is in a list of devices (`cuda:0,cuda:1`).
pub fn has_cpu(list: &str) -> bool {
    devices(list).any(|device| device == "cpu")
}
