use foveate_decode::{DecodeError, Decoder};
use foveate_encode::{DType, EncodeError, Encoder};
use foveate_pipeline::Config;
use foveate_preprocess::{DecoderOpener, PreprocessOptions, PreprocessorOpener, ResizerOpener};
use foveate_resize::{ResizeError, Resizer};
use foveate_sink::{SinkError, SinkOptions, VectorSink};
use foveate_source::{Source, SourceError};

use crate::Cell;

/// What an experiment may vary. What else there is to a job (model, device, limits, …) is the rig's and stays as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Registry name; others stand in for formats that it cannot read.
    pub decoder: String,
    /// Whether decoders may shrink.
    pub fast: bool,
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
    /// Full batches that may wait for the encoder.
    pub prefetch: usize,
}

impl Setting {
    /// One of backends that are called `plain`.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        let plain = || "plain".to_owned();
        Self {
            decoder: plain(),
            fast: false,
            resizer: plain(),
            recipe: "hf".to_owned(),
            encoder: plain(),
            dtype: DType::F32,
            batch: 8,
            workers: 1,
            readers: 2,
            threads: 1,
            prefetch: 1,
        }
    }

    /// The columns of a table that tell it.
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

    /// The name of the decode scale.
    pub fn decode_scale(&self) -> &'static str {
        if self.fast { "fast" } else { "exact" }
    }

    /// What `other` has that this one has not, in words: `workers 1 → 2, batch 32 → 8`. Empty when they are equal.
    pub fn changes_to(&self, other: &Self) -> String {
        let words = self.differences(other).map(|(name, before, after)| format!("{name} {before} → {after}"));
        words.collect::<Vec<_>>().join(", ")
    }

    /// The values of `other` that this one has not, in words: `workers 2, batch 8`.
    pub fn values_of(&self, other: &Self) -> String {
        let words = self.differences(other).map(|(name, _, after)| format!("{name} {after}"));
        words.collect::<Vec<_>>().join(", ")
    }

    /// Name, value of this one and value of the other.
    fn differences(&self, other: &Self) -> impl Iterator<Item = (&'static str, String, String)> + use<> {
        let pairs = self.named().into_iter().zip(other.named());
        pairs
            .filter(|((_, before), (_, after))| before != after)
            .map(|((name, before), (_, after))| (name, before, after))
    }

    fn named(&self) -> [(&'static str, String); 11] {
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
        ]
    }
}

/// A backend that an experiment may try.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// Registry name.
    pub name: String,
    /// What it computes with.
    pub library: String,
    /// Why it cannot be used here, and what would help.
    pub problem: Option<String>,
}

/// What was measured, on what, with what: the last columns of every CSV file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The model as asked for.
    pub model: String,
    /// Where the forward runs.
    pub device: String,
    /// The processor's name.
    pub host: String,
    /// Cores that the process may use.
    pub cores: usize,
    /// Version of foveate.
    pub foveate: String,
    /// Backends compiled in.
    pub features: String,
    /// What they compute with.
    pub libraries: String,
    /// UTC, when the run began.
    pub date: String,
    /// What random choices depend on.
    pub seed: u64,
}

impl Context {
    /// The values of [`schema::CONTEXT`](crate::schema::CONTEXT), in its order.
    pub(crate) fn values(&self) -> [String; 9] {
        let Self { model, device, host, cores, foveate, features, libraries, date, seed } = self.clone();
        [model, device, host, cores.to_string(), foveate, features, libraries, date, seed.to_string()]
    }
}

/// Everything that experiments are made with: the facade's backends behind one value, so that an experiment knows
/// traits only and its tests can put a slow stage in place of any.
pub trait Rig: Sync {
    /// The configuration asked for: what a plain run would use.
    fn base(&self) -> Setting;

    /// What runs it.
    fn context(&self) -> Context;

    /// The photos, in a fixed order: a sample of what the user named.
    fn photos(&self) -> Result<Box<dyn Source>, SourceError>;

    /// Decoders compiled in, the usual one first.
    fn decoders(&self) -> Vec<Candidate>;

    /// Resizers compiled in, the usual one first.
    fn resizers(&self) -> Vec<Candidate>;

    /// Encoders compiled in that take the model, the usual one first.
    fn encoders(&self) -> Vec<Candidate>;

    /// Sinks compiled in, the usual one first.
    fn sinks(&self) -> Vec<Candidate>;

    /// One decoder alone, by name.
    fn open_decoder(&self, name: &str) -> Result<Box<dyn Decoder>, DecodeError>;

    /// Makes the workers' decoders of a setting: its own, with the others behind it.
    fn decoder_opener(&self, setting: &Setting) -> DecoderOpener;

    /// One resizer, by name.
    fn open_resizer(&self, name: &str) -> Result<Box<dyn Resizer>, ResizeError>;

    /// Makes the workers' resizers of a setting.
    fn resizer_opener(&self, setting: &Setting) -> ResizerOpener;

    /// Makes the workers' preprocessors of a setting: its decoder and its resizer as one, or a device's.
    fn preprocessors(&self, setting: &Setting) -> PreprocessorOpener;

    /// How an image of a setting becomes the encoder's input: its recipe's geometry, its hint, its limits.
    fn preprocess(&self, setting: &Setting) -> PreprocessOptions;

    /// The encoder of a setting: for batches of up to `setting.batch`, with `setting.threads` threads.
    fn open_encoder(&self, setting: &Setting) -> Result<Box<dyn Encoder>, EncodeError>;

    /// A sink by name.
    fn open_sink(&self, name: &str, options: &SinkOptions) -> Result<Box<dyn VectorSink>, SinkError>;

    /// How a run of a setting is carried out: its batches, its threads, its queues.
    fn config(&self, setting: &Setting) -> Config;
}
