#![doc = include_str!("../README.md")]

mod checks;
mod commit;
#[cfg(feature = "conformance")]
pub mod conformance;
mod content;
mod copy;
mod csv_field;
mod entries;
mod error;
mod failures;
mod fold;
mod inputs;
mod manifest;
mod merge;
mod names;
pub mod parts;
mod place;
mod prefix;
mod publish;
mod restored;
mod rows;
mod runs;
mod site;
pub mod staging;
mod stored;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foveate_core::{Health, Registry, Stage, known_settings, named_backend};

pub use content::ContentId;
pub use copy::{Join, Keep};
pub use csv_field::push_csv_field;
pub use entries::ActOnRecordedRow;
pub use error::SinkError;
pub use fold::Fold;
pub use inputs::{InputRecord, Likeness, RecordedHash, Stamp};
pub use manifest::{ManifestFile, ManifestPart, OutputManifest, RunManifest, is_plain_name};
pub use merge::{Merge, MergeCandidate};
pub use names::{OutputNames, record_of, shard_suffix, sidecar};
pub use prefix::{Prefix, PrefixBackend, PrefixRegistry};
pub use publish::{AtomicFile, create_folders, hash_file, publish, sync_file, sync_folder};
pub use rows::{ActOnRow, ColumnKinds, Element, RowBuffer, Rows, Shape, StoredRow, VectorReader, column_kinds};
pub use runs::{Difference, Finished, OtherRun, Published, RecordedInputs, RunState};
pub use stored::{StoredFailure, StoredRun, StoredState};

/// The progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Watermark {
    /// Every source item with an index below this is stored as a row or recorded as failed.
    pub index: u64,
    /// The place at which the source finds the last of these items again, in the source's own terms; 0 if the index is
    /// enough.
    pub place: u64,
}

impl From<u64> for Watermark {
    fn from(index: u64) -> Self {
        Self { index, place: 0 }
    }
}

/// Stores vectors. One thread uses it.
pub trait VectorSink: Send {
    /// Starts or resumes a run. Returns the stored rows' watermark ([`SinkOptions::first_index`] for a fresh run); the
    /// caller continues at that item. Refuses to resume a run with another fingerprint and names the difference.
    fn begin(&mut self, manifest: &RunManifest, existing: Existing) -> Result<Watermark, SinkError>;

    /// Number of committed failures, those of a resumed run's earlier sessions included.
    fn failures(&mut self) -> Result<u64, SinkError>;

    /// Appends rows, in source order. Not durable before [`commit`](Self::commit).
    fn append(&mut self, rows: &Rows<'_>) -> Result<(), SinkError>;

    /// Records failed items, in source order. Not durable before [`commit`](Self::commit).
    fn fail(&mut self, failures: &[Failure]) -> Result<(), SinkError>;

    /// Records what was read, in source order, each item once. Not durable before [`commit`](Self::commit). A sink that
    /// keeps no such record ignores it.
    fn record(&mut self, _inputs: &[InputRecord]) -> Result<(), SinkError> {
        Ok(())
    }

    /// Takes a complete part instead of its rows: one that the replaced output has and keeps, or one that the update's
    /// later run has. The records of its items follow, and a commit. Parts come before other rows or after a commit.
    ///
    /// # Errors
    /// [`SinkError::Misuse`] if the sink has no parts, or if rows were not committed.
    fn adopt(&mut self, _part: &ManifestPart, _is_later: bool) -> Result<(), SinkError> {
        Err(SinkError::Misuse("this sink has no parts".to_owned()))
    }

    /// Makes all rows and failures so far durable, atomically: after a crash either all of them or none are there.
    fn commit(&mut self, watermark: Watermark) -> Result<(), SinkError>;

    /// Publishes the complete output under its final names. Does not commit further rows. If every item failed, the
    /// output is the failures file alone, because an empty output would pass for a result.
    fn finish(&mut self) -> Result<Published, SinkError>;
}

/// The treatment of an existing output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Continues an interrupted run of the same job. A complete output is [`SinkError::AlreadyComplete`] if it belongs
    /// to this same job, [`SinkError::OtherRun`] if it belongs to another one, and [`SinkError::Exists`] if no run
    /// wrote it.
    Resume,
    /// Starts over. An existing output stays until the new one takes its place.
    Overwrite,
    /// Does the same for an update. The work in progress is not continued, since its items have no order of a source.
    Update,
    /// Refuses any existing output.
    Refuse,
}

/// An item without a vector, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Position in the source.
    pub index: u64,
    /// The item's id.
    pub id: String,
    /// The stage that failed.
    pub stage: Stage,
    /// The reason, one line.
    pub reason: String,
    /// Number of encoded bytes read, if reading succeeded.
    pub bytes: Option<u64>,
}

impl Failure {
    /// The reason without what only this input has: `truncated JPEG`, `not found`.
    pub fn kind(&self) -> &str {
        for (sign, kind) in [
            ("pixels, more than the limit", "more pixels than the limit"),
            ("bytes, more than the limit", "more bytes than the limit"),
        ] {
            if self.reason.contains(sign) {
                return kind;
            }
        }
        let reason = self.reason.strip_prefix(&self.id).unwrap_or(&self.reason).trim_start_matches([':', ' ']);
        reason.split_once(": ").map_or(reason, |(kind, _)| kind)
    }
}

/// The place and the form of an output.
#[derive(Clone, Debug)]
pub struct SinkOptions {
    /// The output as the user named it: a file with the sink's extension, a folder, or the address of `prefix`.
    pub output: PathBuf,
    /// The place of an output in an object store. Its layout is a folder's.
    pub prefix: Option<Arc<dyn Prefix>>,
    /// The folder for files on their way to `prefix`; `None` for the system's folder of temporary files.
    pub staging: Option<PathBuf>,
    /// The form of `output`: one file or a folder of part files.
    pub layout: Layout,
    /// The type of stored components.
    pub element: Element,
    /// Number of source items that one part covers: part `k` holds the rows with `first_index + k * part_items <= index
    /// < first_index + (k + 1) * part_items`.
    pub part_items: u64,
    /// Index of this run's first item (not 0 for a later shard): a fresh run's watermark.
    pub first_index: u64,
    /// `(i, n)`, `i < n`: this run writes shard `i` of `n`, and its file names contain that.
    pub shard: Option<(u32, u32)>,
    /// Names of the columns that the items carry along. A sink that cannot store them refuses to open. They are in
    /// the run's fingerprint as `sink.columns`.
    pub columns: Vec<String>,
    /// Kinds of those columns that are not text. They are in the run's fingerprint as `sink.column_kinds`.
    pub column_kinds: ColumnKinds,
    /// Settings that only the sink understands (`compression` of `parquet`), by name; see [`Self::settings`]. They
    /// affect the output's bytes, so the run's fingerprint contains them as `sink.NAME`.
    pub settings: BTreeMap<String, String>,
    /// True if an output without any row is published like others. Usually it is the failures file alone, because it
    /// would pass for a result.
    pub publish_empty: bool,
    /// True for shards of images, which [`parts::FileParts`] makes: their names are `00000.tar`, and an output without
    /// any is published.
    pub packed: bool,
    /// True if the contents of an output that is already complete are compared with their hashes. Lengths always are.
    pub check: bool,
}

impl SinkOptions {
    /// The default for [`part_items`](Self::part_items): about 100 MB of 384 f32 components.
    pub const DEFAULT_PART_ITEMS: u64 = 65_536;

    /// The folder for temporary files.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.staging.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// Options for `output`, its layout taken from the path ([`Layout::of`]): f32, default parts, no shard.
    pub fn new(output: impl Into<PathBuf>) -> Self {
        let output = output.into();
        Self {
            layout: Layout::of(&output),
            output,
            prefix: None,
            staging: None,
            element: Element::F32,
            part_items: Self::DEFAULT_PART_ITEMS,
            first_index: 0,
            shard: None,
            columns: Vec::new(),
            column_kinds: ColumnKinds::default(),
            settings: BTreeMap::new(),
            publish_empty: false,
            packed: false,
            check: false,
        }
    }

    /// Returns the settings, after checking that every name is in `known`.
    ///
    /// # Errors
    /// [`SinkError::Unsupported`], which names the unknown setting and lists the known ones.
    pub fn settings(&self, known: &[&str]) -> Result<&BTreeMap<String, String>, SinkError> {
        known_settings(&self.settings, known).map_err(SinkError::Unsupported)
    }

    /// Refuses columns, for a sink that cannot store them.
    ///
    /// # Errors
    /// [`SinkError::Unsupported`], which names them.
    pub fn check_no_columns(&self) -> Result<(), SinkError> {
        match &self.columns[..] {
            [] => Ok(()),
            columns => Err(SinkError::Unsupported(format!("columns ({}); Parquet can store them", columns.join(", ")))),
        }
    }
}

/// The form of an output: one file or a folder of parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// One file (with sidecars next to it) that appears when the run is complete.
    #[default]
    File,
    /// A folder of part files that each appear when complete; `manifest.json` appears last.
    Folder,
}

impl Layout {
    /// Returns a folder if the path ends in a separator, is an existing folder, or has no file name extension.
    pub fn of(output: &Path) -> Self {
        let ends_in_separator =
            output.as_os_str().as_encoded_bytes().last().is_some_and(|&b| std::path::is_separator(b as char));
        if ends_in_separator || output.extension().is_none() || output.is_dir() { Self::Folder } else { Self::File }
    }
}

type Open = dyn Fn(&SinkOptions) -> Result<Box<dyn VectorSink>, SinkError> + Send + Sync;

/// A named way to make sinks.
pub struct SinkBackend {
    name: &'static str,
    about: &'static str,
    extension: &'static str,
    columns: bool,
    prefixes: bool,
    open: Box<Open>,
    health: fn() -> Health,
    reader: Option<Box<dyn VectorReader>>,
}

impl SinkBackend {
    /// A backend called `name` for outputs that end in `.extension`; `open` makes a sink without writing to disk.
    pub fn new<F>(name: &'static str, about: &'static str, extension: &'static str, open: F) -> Self
    where
        F: Fn(&SinkOptions) -> Result<Box<dyn VectorSink>, SinkError> + Send + Sync + 'static,
    {
        let open = Box::new(open);
        Self { name, about, extension, columns: false, prefixes: false, open, health: Health::all_rust, reader: None }
    }

    /// Says that it can store columns; see [`SinkOptions::columns`].
    #[must_use]
    pub fn with_columns(self) -> Self {
        Self { columns: true, ..self }
    }

    /// Returns true if it can store columns.
    pub fn has_columns(&self) -> bool {
        self.columns
    }

    /// Says that it can write to an object store; see [`SinkOptions::prefix`].
    #[must_use]
    pub fn with_prefixes(self) -> Self {
        Self { prefixes: true, ..self }
    }

    /// Makes [`foveate_core::Backend::health`] call `health`; without it, the backend counts as pure Rust.
    #[must_use]
    pub fn with_health(self, health: fn() -> Health) -> Self {
        Self { health, ..self }
    }

    /// Makes [`Self::reader`] return `reader`.
    #[must_use]
    pub fn with_reader(self, reader: impl VectorReader + 'static) -> Self {
        Self { reader: Some(Box::new(reader)), ..self }
    }

    /// Returns the reader of the sink's files, if it has one.
    pub fn reader(&self) -> Option<&dyn VectorReader> {
        self.reader.as_deref()
    }

    /// Its file name extension, without the dot.
    pub fn extension(&self) -> &'static str {
        self.extension
    }

    /// Makes a sink.
    ///
    /// # Errors
    /// [`SinkError::Unsupported`] for columns or an object store, if it cannot store them or write there, and for what
    /// its own settings lack.
    pub fn open(&self, options: &SinkOptions) -> Result<Box<dyn VectorSink>, SinkError> {
        if options.prefix.is_some() && !self.prefixes {
            let remedy = "write to a folder and copy it there, or write Parquet or npy";
            return Err(SinkError::Unsupported(format!("an output in an object store; {remedy}")));
        }
        if !self.columns {
            options.check_no_columns()?;
        }
        (self.open)(options)
    }
}

named_backend!(SinkBackend);

/// The sinks compiled into a program.
pub type SinkRegistry = Registry<SinkBackend>;
