//! The crash-safe store for file formats.
//!
//! A format defines how one part is written ([`PartFormat`]). [`PartSink`] turns it into a
//! [`VectorSink`](crate::VectorSink) that survives being killed at any moment:
//!
//! - A part covers a **fixed range of source indexes**, so its bytes depend on its rows alone, not on batch size,
//!   commits, workers or interruptions.
//! - The rows of an incomplete part are in an append-only log with checksums. `commit` syncs the log and appends one
//!   record to the journal. Only data that the record covers counts.
//! - When the watermark passes a part's end, the part is encoded from its log under a temporary name, synced, renamed
//!   and recorded. Only then is its log removed.
//! - `finish` prepares all remaining files, records that, and renames them. The file that means "complete" comes last.
//!
//! All of this happens in a staging folder on the output's own file system ([`OutputNames::staging`]). A file lock
//! holds it for the sink's lifetime. See [`OutputNames`] for the file names.
//!
//! [`PrefixSink`] does the same below a prefix of an object store, around a [`PartSink`].

mod journal;
mod log;
mod objects;
mod prefix_sink;
mod records;
mod sink;
mod stored;

use std::path::{Path, PathBuf};

use log::{LogExtent, LogPaths};

pub use log::{RowBlock, RowReader};
pub use prefix_sink::{PrefixSink, open};
pub use sink::PartSink;
pub use stored::{StoredFailure, StoredRun, StoredState};

use crate::{Element, RunManifest, SinkError, SinkOptions};

#[cfg(doc)]
use crate::OutputNames;

/// A file format that stores one part at a time.
pub trait PartFormat: Send {
    /// The format's name, as in the registry.
    fn name(&self) -> &'static str;

    /// Extension of the file that holds the vectors, without the dot.
    fn extension(&self) -> &'static str;

    /// Name endings of each part's further files (`ids.csv`).
    fn sidecars(&self) -> &'static [&'static str];

    /// Bytes to leave free at the start of [`StoredPart::vector_file`]. A format whose rows are raw can put its header
    /// there and link the file instead of copying it.
    fn free_bytes(&self) -> u64;

    /// Returns true if [`assemble`](Self::assemble) joins parts into a single-file output. Otherwise the whole run is
    /// one part, encoded at the end.
    fn assembles(&self) -> bool;

    /// Checks that the format can store columns with these names; by default it has no columns.
    ///
    /// # Errors
    /// [`SinkError::Unsupported`], which says why not.
    fn check_columns(&self, options: &SinkOptions) -> Result<(), SinkError> {
        options.check_no_columns()
    }

    /// Writes a part to `files`, replacing files of an earlier attempt. Equal rows and manifest must give equal bytes.
    /// The store syncs and renames the files.
    fn encode(&mut self, part: &StoredPart<'_>, manifest: &RunManifest, files: &PartFiles) -> Result<(), SinkError>;

    /// Writes the rows of `parts` (two or more vector files, in order) to one file, replacing an existing one. Called
    /// only if [`assembles`](Self::assembles).
    fn assemble(&mut self, parts: &[PathBuf], manifest: &RunManifest, file: &Path) -> Result<(), SinkError>;
}

/// The paths of a part's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartFiles {
    /// The file with the vectors.
    pub vectors: PathBuf,
    /// One for each of [`PartFormat::sidecars`].
    pub sidecars: Vec<PathBuf>,
}

impl PartFiles {
    /// All files, sidecars first: the order in which they get their names.
    fn publishing_order(&self) -> impl Iterator<Item = &PathBuf> {
        self.sidecars.iter().chain(std::iter::once(&self.vectors))
    }
}

/// The rows of one part, complete and on disk.
#[derive(Debug)]
pub struct StoredPart<'a> {
    paths: &'a LogPaths,
    extent: &'a LogExtent,
    free: u64,
    dim: usize,
    element: Element,
    columns: &'a [String],
}

impl StoredPart<'_> {
    /// Number of rows; 0 only if the whole run has none.
    pub fn rows(&self) -> u64 {
        self.extent.rows
    }

    /// Components of each vector.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// How each component is stored.
    pub fn element(&self) -> Element {
        self.element
    }

    /// The names of the columns; see [`RowBlock::column`].
    pub fn columns(&self) -> &[String] {
        self.columns
    }

    /// Reads the rows and verifies their checksums. A format that takes [`vector_file`](Self::vector_file) as it is
    /// reads them, too, or it would publish what a disk has damaged.
    pub fn reader(&self) -> Result<RowReader, SinkError> {
        RowReader::open(self.paths, self.extent, self.free, (self.dim * self.element.bytes(), self.columns.len()))
    }

    /// The file with only the vectors: [`PartFormat::free_bytes`], then little-endian elements, `[rows, dim]`,
    /// row-major. A format may write to the free bytes and hard-link the file.
    pub fn vector_file(&self) -> &Path {
        &self.paths.vectors
    }
}

/// Entry points for fuzzing: parsers of on-disk data and of objects. Not a stable interface.
#[doc(hidden)]
pub mod fuzzing {
    /// Parses a claim and a part's record.
    pub fn objects(bytes: &[u8]) -> (bool, bool) {
        (super::records::Claim::parse(bytes).is_ok(), super::records::PartRecord::parse(bytes).is_ok())
    }

    /// Parses a journal; returns the number of rows in its sealed parts.
    pub fn journal(bytes: &[u8]) -> Result<Option<u64>, String> {
        Ok(super::journal::State::parse(bytes)?.map(|state| state.watermark))
    }

    /// Parses the frames of a part's log, of rows with as many `columns`; returns the number of rows.
    pub fn row_log(bytes: &[u8], columns: usize) -> Option<usize> {
        let mut frames = super::log::Frames::new(bytes, bytes.len() as u64, columns);
        let mut rows = 0;
        while frames.advance().ok()? {
            rows += frames.rows();
        }
        Some(rows)
    }
}
