#![doc = include_str!("../README.md")]

#[cfg(feature = "conformance")]
pub mod conformance;
mod csv;
mod error;
mod manifest;
mod names;
pub mod parts;
mod publish;
pub mod staging;

use std::collections::BTreeMap;

use foveate_core::{Health, Registry, Stage, known_settings, named_backend};

pub use csv::push_csv_field;
pub use error::SinkError;
pub use manifest::{ManifestFile, ManifestPart, OutputManifest, RunManifest};
pub use names::{OutputNames, shard_suffix};
pub use publish::{AtomicFile, publish, sync_file, sync_folder};

/// Every source item with an index below this is stored as a row or recorded as failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Watermark(pub u64);

/// Stores vectors. Used by one thread.
pub trait VectorSink: Send {
    /// Starts or resumes a run. Returns the watermark of what is already stored ([`SinkOptions::first_index`] for a
    /// fresh run): the caller continues at that item. Refuses to resume a run with another fingerprint, naming the difference.
    fn begin(&mut self, manifest: &RunManifest, existing: Existing) -> Result<Watermark, SinkError>;

    /// Takes rows, in source order. Not durable before [`commit`](Self::commit).
    fn append(&mut self, rows: &Rows<'_>) -> Result<(), SinkError>;

    /// Takes records of failed items, in source order. Not durable before [`commit`](Self::commit).
    fn fail(&mut self, failures: &[Failure]) -> Result<(), SinkError>;

    /// Makes everything taken so far durable, atomically: after a crash either all of it or none of it is there.
    fn commit(&mut self, watermark: Watermark) -> Result<(), SinkError>;

    /// Commits nothing further; publishes the complete output under its final names. If every item failed, that is the
    /// failures file alone: an empty output would pass for a result.
    fn finish(&mut self) -> Result<Published, SinkError>;
}

/// What to do with an output that is already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// An interrupted run of the same job is continued. A complete output is [`SinkError::AlreadyComplete`] when it is
    /// this very job's, else [`SinkError::Exists`].
    Resume,
    /// Remove what is there and start anew.
    Overwrite,
    /// Anything that is already there is an error.
    Refuse,
}

/// A block of rows: entry `i` of each slice belongs together.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Place of each item in the source, increasing.
    pub index: &'a [u64],
    /// The item's id.
    pub id: &'a [String],
    /// Vectors, `[n, dim]`, f32, row-major.
    pub vectors: &'a [f32],
    /// Width of each image in pixels, after orientation.
    pub width: &'a [u32],
    /// Height of each image in pixels, after orientation.
    pub height: &'a [u32],
    /// XXH3-64 of each file's bytes.
    pub xxh3: &'a [u64],
}

/// An item that has no vector, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Place in the source.
    pub index: u64,
    /// The item's id.
    pub id: String,
    /// The stage that failed.
    pub stage: Stage,
    /// The reason, one line.
    pub reason: String,
    /// Encoded bytes that were read, if it got so far.
    pub bytes: Option<u64>,
}

/// What a finished run left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Files, the main one first, the failures file last.
    pub files: Vec<std::path::PathBuf>,
    /// Vectors in the output, earlier sessions of a resumed run included.
    pub rows: u64,
    /// Failures recorded, earlier sessions included.
    pub failures: u64,
}

/// Where and how to write.
#[derive(Clone, Debug, PartialEq)]
pub struct SinkOptions {
    /// The output as the user named it: a file with the sink's extension, or a folder.
    pub output: std::path::PathBuf,
    /// Whether `output` is one file or a folder of part files.
    pub layout: Layout,
    /// How vectors are stored.
    pub element: Element,
    /// Items of the source that one part covers: part `k` holds the rows with
    /// `first_index + k * part_items <= index < first_index + (k + 1) * part_items`.
    pub part_items: u64,
    /// Index of the first item of this run (not 0 when the run is a later shard): a fresh run's watermark.
    pub first_index: u64,
    /// `(i, n)`, `i < n`: this run writes shard `i` of `n`, and its file names say so.
    pub shard: Option<(u32, u32)>,
    /// What only the sink understands (`compression` of `parquet`), by name; see [`Self::settings`]. They decide the bytes,
    /// so they are in the run's fingerprint, as `sink.NAME`.
    pub settings: BTreeMap<String, String>,
}

impl SinkOptions {
    /// [`part_items`](Self::part_items) unless told otherwise: about 100 MB of 384 f32 components.
    pub const DEFAULT_PART_ITEMS: u64 = 65_536;

    /// Options for `output`, its layout taken from the path ([`Layout::of`]): f32, default parts, no shard.
    pub fn new(output: impl Into<std::path::PathBuf>) -> Self {
        let output = output.into();
        Self {
            layout: Layout::of(&output),
            output,
            element: Element::F32,
            part_items: Self::DEFAULT_PART_ITEMS,
            first_index: 0,
            shard: None,
            settings: BTreeMap::new(),
        }
    }

    /// The settings, once every one of them is among those that the sink has (`known`).
    ///
    /// # Errors
    /// [`SinkError::Unsupported`], naming the setting and those there are.
    pub fn settings(&self, known: &[&str]) -> Result<&BTreeMap<String, String>, SinkError> {
        known_settings(&self.settings, known).map_err(SinkError::Unsupported)
    }
}

/// Whether an output is one file or a folder of parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// One file (with sidecars beside it), which appears when the run is complete.
    #[default]
    File,
    /// A folder of part files, each of which appears when it is complete; `manifest.json` appears last.
    Folder,
}

impl Layout {
    /// A folder when the path ends in a separator, is an existing folder, or has no file name extension.
    pub fn of(output: &std::path::Path) -> Self {
        let ends_in_separator =
            output.as_os_str().as_encoded_bytes().last().is_some_and(|&b| std::path::is_separator(b as char));
        if ends_in_separator || output.extension().is_none() || output.is_dir() { Self::Folder } else { Self::File }
    }
}

/// How a vector's components are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Element {
    /// 32-bit floats.
    #[default]
    F32,
    /// 16-bit floats, rounded to nearest even.
    F16,
}

impl Element {
    /// The name on the command line and in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
        }
    }
}

type Open = dyn Fn(&SinkOptions) -> Result<Box<dyn VectorSink>, SinkError> + Send + Sync;

/// A named way to make sinks.
pub struct SinkBackend {
    name: &'static str,
    about: &'static str,
    extension: &'static str,
    open: Box<Open>,
    health: fn() -> Health,
}

impl SinkBackend {
    /// A backend called `name` for outputs that end in `.extension`; `open` makes a sink, touching nothing on disk.
    pub fn new<F>(name: &'static str, about: &'static str, extension: &'static str, open: F) -> Self
    where
        F: Fn(&SinkOptions) -> Result<Box<dyn VectorSink>, SinkError> + Send + Sync + 'static,
    {
        Self { name, about, extension, open: Box::new(open), health: Health::all_rust }
    }

    /// The same, answering [`foveate_core::Backend::health`] with `health`; without it, it counts as all Rust.
    #[must_use]
    pub fn with_health(self, health: fn() -> Health) -> Self {
        Self { health, ..self }
    }

    /// The file name extension it claims, without the dot.
    pub fn extension(&self) -> &'static str {
        self.extension
    }

    /// Makes a sink.
    pub fn open(&self, options: &SinkOptions) -> Result<Box<dyn VectorSink>, SinkError> {
        (self.open)(options)
    }
}

named_backend!(SinkBackend);

/// The sinks compiled into a program.
pub type SinkRegistry = Registry<SinkBackend>;
