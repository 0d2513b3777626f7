use std::fmt;
use std::sync::Arc;

use foveate_decode::{DecodeError, Decoder};
use foveate_encode::{DType, EncodeError, Encoder};
use foveate_pipeline::Config;
use foveate_preprocess::{DecodeScale, DecoderOpener, PreprocessOptions, PreprocessorOpener, ResizerOpener};
use foveate_resize::{ResizeError, Resizer};
use foveate_sink::{SinkError, SinkOptions, VectorSink};
use foveate_source::store::Store;
use foveate_source::{Input, Source, SourceError};
use serde::{Deserialize, Serialize};

use crate::{Cell, Memory};

/// The values that an experiment may vary. Everything else in a job (model, device, limits, …) belongs to the rig and
/// stays constant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Registry name; others decode the formats that it cannot read.
    pub decoder: String,
    /// The extent to which decoders may return a smaller image than the file holds.
    pub scale: DecodeScale,
    /// Registry name.
    pub resizer: String,
    /// `hf` or `squash`.
    pub recipe: String,
    /// Registry name.
    pub encoder: String,
    /// Precision of the forward.
    pub dtype: DType,
    /// Images per batch.
    pub batch: usize,
    /// Threads that decode and resize; 0 runs every stage in turn on one thread.
    pub workers: usize,
    /// Threads that read.
    pub readers: usize,
    /// Threads of the forward on a CPU.
    pub threads: usize,
    /// Maximum number of full batches that wait for the encoder.
    pub prefetch: usize,
    /// Requests to an object store in flight.
    pub requests: usize,
}

/// Opens a store with this many requests in flight.
pub type StoreOpener = Arc<dyn Fn(usize) -> Result<Arc<dyn Store>, SourceError> + Send + Sync>;

impl Setting {
    /// Returns a setting whose backends are called `plain`.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        let plain = || "plain".to_owned();
        Self {
            decoder: plain(),
            scale: DecodeScale::Exact,
            resizer: plain(),
            recipe: "hf".to_owned(),
            encoder: plain(),
            dtype: DType::F32,
            batch: 8,
            workers: 1,
            readers: 2,
            threads: 1,
            prefetch: 1,
            requests: 64,
        }
    }

    /// Returns the columns that identify it in a table.
    pub(crate) fn columns(&self) -> [(&'static str, Cell); 8] {
        [
            ("decoder", self.decoder.as_str().into()),
            ("resizer", self.resizer.as_str().into()),
            ("encoder", self.encoder.as_str().into()),
            ("dtype", self.dtype.name().into()),
            ("decode_scale", self.decode_scale().into()),
            ("workers", self.workers.into()),
            ("threads", self.threads.into()),
            ("batch", self.batch.into()),
        ]
    }

    /// Returns the name of the decode scale.
    pub fn decode_scale(&self) -> &'static str {
        self.scale.name()
    }

    /// Describes the changes from this one to `other`: `workers 1 to 2, batch 32 to 8`. Empty if they are equal.
    pub fn changes_to(&self, other: &Self) -> String {
        let words = self.differences(other).map(|(name, before, after)| format!("{name} {before} to {after}"));
        words.collect::<Vec<_>>().join(", ")
    }

    /// Describes the values of `other` that differ from this one: `workers 2, batch 8`.
    pub fn values_of(&self, other: &Self) -> String {
        let words = self.differences(other).map(|(name, _, after)| format!("{name} {after}"));
        words.collect::<Vec<_>>().join(", ")
    }

    /// Returns true if `one` and `other` give the same name different values, neither of which is this one's.
    pub(crate) fn contradict(&self, one: &Self, other: &Self) -> bool {
        let values = self.named().into_iter().zip(one.named()).zip(other.named());
        values.into_iter().any(|((base, one), other)| one != base && other != base && one != other)
    }

    /// Returns the name and both values of each difference, this one's first.
    fn differences(&self, other: &Self) -> impl Iterator<Item = (&'static str, String, String)> + use<> {
        let pairs = self.named().into_iter().zip(other.named());
        pairs
            .filter(|((_, before), (_, after))| before != after)
            .map(|((name, before), (_, after))| (name, before, after))
    }

    fn named(&self) -> [(&'static str, String); 12] {
        [
            ("decoder", self.decoder.clone()),
            ("decode scale", self.decode_scale().to_owned()),
            ("resizer", self.resizer.clone()),
            ("recipe", self.recipe.clone()),
            ("encoder", self.encoder.clone()),
            ("precision", self.dtype.name().to_owned()),
            ("workers", self.workers.to_string()),
            ("threads", self.threads.to_string()),
            ("batch", self.batch.to_string()),
            ("readers", self.readers.to_string()),
            ("prefetch", self.prefetch.to_string()),
            ("requests", self.requests.to_string()),
        ]
    }
}

/// The backends and counts that mostly decide the throughput: `exact + fir + fused f32, workers 2, threads 2, batch 8`.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { decoder, resizer, encoder, workers, threads, batch, .. } = self;
        let scale = match self.scale {
            DecodeScale::Exact => String::new(),
            scale => format!(" ({scale})"),
        };
        let dtype = self.dtype.name();
        write!(
            f,
            "{decoder}{scale} + {resizer} + {encoder} {dtype}, workers {workers}, threads {threads}, batch {batch}"
        )
    }
}

/// A backend that an experiment may try.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// Registry name.
    pub name: String,
    /// The library that it computes with.
    pub library: String,
    /// The reason why it cannot be used here, and the remedy.
    pub problem: Option<String>,
}

/// The circumstances of a measurement: the last columns of every CSV file. A file of an older version may lack some.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Context {
    /// The model as the user named it.
    pub model: String,
    /// Device of the forward.
    pub device: String,
    /// The processor's name.
    pub host: String,
    /// Cores that the process may use.
    pub cores: usize,
    /// Version of foveate.
    pub foveate: String,
    /// The commit that was built, with `+` if the sources differ from it; empty if that is not known.
    pub commit: String,
    /// Backends compiled in.
    pub features: String,
    /// The libraries that they compute with.
    pub libraries: String,
    /// Start of the run, in UTC.
    pub date: String,
    /// `full`, or `quick` if samples are fewer or shorter than usual.
    pub effort: String,
    /// Seed of the random choices.
    pub seed: u64,
}

impl Context {
    /// Returns true if the forward runs on the cores that decode.
    pub fn is_on_cpu(&self) -> bool {
        self.device.starts_with("cpu")
    }

    /// Returns the values of the first columns of [`schema::CONTEXT`](crate::schema::CONTEXT), in its order.
    pub(crate) fn values(&self) -> [String; 11] {
        let Self { model, device, host, cores, foveate, commit, features, libraries, date, effort, seed } =
            self.clone();
        [model, device, host, cores.to_string(), foveate, commit, features, libraries, date, effort, seed.to_string()]
    }
}

/// Everything that experiments need: the facade's backends behind one value. So an experiment knows only traits, and
/// its tests can replace any stage by a slow one.
pub trait Rig: Sync {
    /// Returns the requested configuration: what a plain run would use.
    fn base(&self) -> Setting;

    /// Returns the circumstances of the measurement.
    fn context(&self) -> Context;

    /// Returns the photos in a fixed order: a sample of the user's inputs.
    fn photos(&self) -> Result<Box<dyn Source>, SourceError>;

    /// Lists other inputs as a job would.
    fn list(&self, inputs: Vec<Input>) -> Result<Box<dyn Source>, SourceError>;

    /// Returns the opener of the store whose addresses have this `scheme` (`s3` of `s3://bucket/key`).
    fn store_opener(&self, scheme: &str) -> StoreOpener;

    /// Returns the decoders compiled in, the usual one first.
    fn decoders(&self) -> Vec<Candidate>;

    /// Returns the decoders compiled in that decode and resize whole batches on a device.
    fn batched_decoders(&self) -> Vec<Candidate>;

    /// Returns the resizers compiled in, the usual one first.
    fn resizers(&self) -> Vec<Candidate>;

    /// Returns the encoders compiled in that take the model, the usual one first.
    fn encoders(&self) -> Vec<Candidate>;

    /// Returns the sinks compiled in, the usual one first.
    fn sinks(&self) -> Vec<Candidate>;

    /// Opens one decoder alone, by name.
    fn open_decoder(&self, name: &str) -> Result<Box<dyn Decoder>, DecodeError>;

    /// Returns the opener of the setting's decoders for workers: its own, with the others as fallback.
    fn decoder_opener(&self, setting: &Setting) -> DecoderOpener;

    /// Opens one resizer, by name.
    fn open_resizer(&self, name: &str) -> Result<Box<dyn Resizer>, ResizeError>;

    /// Returns the opener of the setting's resizers for workers.
    fn resizer_opener(&self, setting: &Setting) -> ResizerOpener;

    /// Returns the opener of the setting's preprocessors for workers: its decoder and its resizer as one, or a
    /// device's.
    fn preprocessors(&self, setting: &Setting) -> PreprocessorOpener;

    /// Returns the options that turn an image into the encoder's input: the recipe's geometry, its hint, its limits.
    fn preprocess(&self, setting: &Setting) -> PreprocessOptions;

    /// Opens the setting's encoder, for batches of up to `setting.batch`, with `setting.threads` threads.
    fn open_encoder(&self, setting: &Setting) -> Result<Box<dyn Encoder>, EncodeError>;

    /// Returns the setting with the usual encoder on the CPU, in f32 on every core.
    fn setting_on_cpu(&self, setting: &Setting) -> Setting;

    /// Opens that setting's encoder on the CPU, even if the rig's device is another.
    fn open_on_cpu(&self, setting: &Setting) -> Result<Box<dyn Encoder>, EncodeError>;

    /// Returns the model's name or path, and the model as an ONNX file in f32 with the job's pooling.
    ///
    /// # Errors
    /// Fails if the model is not a checkpoint.
    fn model_for_peers(&self) -> Result<(String, Vec<u8>), EncodeError> {
        Err(EncodeError::Unsupported("other libraries: they compute a checkpoint".to_owned()))
    }

    /// Returns the memory of a process that opens the setting's encoder, runs its batch and nothing else,
    /// or the reason why that is not known.
    fn memory_of_forward(&self, setting: &Setting) -> Result<Memory, String>;

    /// Opens a sink by name.
    fn open_sink(&self, name: &str, options: &SinkOptions) -> Result<Box<dyn VectorSink>, SinkError>;

    /// Returns the setting's configuration of a run: its batches, its threads, its queues.
    fn config(&self, setting: &Setting) -> Config;
}
