//! The settings of a job.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use foveate_core::PixelLimits;
use foveate_decode::DecoderOptions;
use foveate_encode::{DType, EncoderOptions, Pooling};
use foveate_lane::Normalize;
use foveate_pipeline::{Config, FailurePolicy};
use foveate_preprocess::{OrientationPolicy, PreprocessOptions};
use foveate_profile::Trace;
use foveate_resize::Geometry;
use foveate_sink::{Element, Existing, SinkOptions};
use foveate_source::store::{StoreOptions, WebHeaders};
use foveate_source::{Input, NameFilter};

use crate::{DecodeScale, Recipe, Shard};

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
    /// The file that keeps the listing, for runs that continue and other shards.
    pub listing: Option<PathBuf>,
    /// Fields of containers' members that become columns of the output.
    pub columns: Vec<String>,
    /// The column of a table that holds the images; `None` finds it by its type.
    pub image_column: Option<String>,
    /// The column of a table that holds the ids.
    pub id_column: Option<String>,
    /// Which files, objects and containers' members count.
    pub names: NameFilter,
    /// Objects of a store that are requested at a time.
    pub requests: usize,
    /// Longest time for one object of a store, with all attempts; see [`StoreOptions::deadline`].
    pub deadline: Option<Duration>,
    /// Headers of requests to web servers.
    pub headers: WebHeaders,
    /// Most redirects of an address of the web.
    pub max_redirects: u32,
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
    /// Where vectors are kept from run to run.
    pub cache: Option<CacheOptions>,
    /// Most memory for the vectors of recent contents; see [`Config::recent_bytes`].
    pub recent_bytes: u64,
    /// True if the contents of an output that is already complete are compared with their hashes.
    pub check: bool,
}

/// A cache of vectors, which runs and processes share.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Its folder, on a local disk.
    pub folder: PathBuf,
    /// Most bytes on disk; the least recently used vectors go first.
    pub bytes: u64,
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
            listing: None,
            columns: Vec::new(),
            image_column: None,
            names: NameFilter::default(),
            id_column: None,
            requests: StoreOptions::DEFAULT_REQUESTS,
            deadline: None,
            headers: WebHeaders::default(),
            max_redirects: StoreOptions::DEFAULT_REDIRECTS,
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
            changes_file: None,
            max_removed: FailurePolicy::Percent(10.0),
            max_unreadable: Some(Config::MAX_UNREADABLE),
            commit_every: Duration::from_secs(2),
            by_content: false,
            cache: None,
            recent_bytes: Config::RECENT_BYTES,
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

    /// Returns how the inputs' stores are read.
    pub(crate) fn store_options(&self) -> StoreOptions {
        StoreOptions {
            max_bytes: self.max_bytes,
            requests: self.requests,
            deadline: self.deadline,
            headers: self.headers.clone(),
            max_redirects: self.max_redirects,
            settings: self.store_settings.clone(),
            ..StoreOptions::default()
        }
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
    pub(super) fn kind_of_devices(&self) -> String {
        let kinds: BTreeSet<_> = self.devices().map(|device| device.split(':').next().unwrap_or(device)).collect();
        kinds.into_iter().collect::<Vec<_>>().join(",")
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
            recent_bytes: self.recent_bytes,
            earlier: None,
            cache: None,
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

fn devices(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|device| !device.is_empty())
}

/// Returns true if the CPU is in a list of devices (`cuda:0,cuda:1`).
pub fn has_cpu(list: &str) -> bool {
    devices(list).any(|device| device == "cpu")
}
