//! The crash-safe store that file formats plug into.
//!
//! A format says how one part is written ([`PartFormat`]); [`PartSink`] turns that into a
//! [`VectorSink`](crate::VectorSink) that survives being killed at any moment. How:
//!
//! - A part covers a **fixed range of source indexes**, so its bytes depend on its rows alone: not on batch size,
//!   commits, workers or interruptions.
//! - Until a part is complete its rows are in an append-only log with checksums. `commit` syncs the log and appends
//!   one record to the journal: what the record says is there, the rest never was.
//! - When the watermark passes a part's end the part is encoded from its log under a temporary name, synced, renamed,
//!   and recorded; only then does its log go.
//! - `finish` prepares every remaining file, records that, and renames them; the one that means "complete" comes last.
//!
//! Everything lives in a staging folder on the output's own file system ([`OutputNames::staging`]), held by a file
//! lock for as long as the sink lives. See [`OutputNames`] for what is called what.

mod journal;
mod log;
mod sink;

use std::path::{Path, PathBuf};

use log::{LogExtent, LogPaths};

pub use log::{RowBlock, RowReader};
pub use sink::PartSink;

use crate::{Element, RunManifest, SinkError};

#[cfg(doc)]
use crate::OutputNames;

/// A file format that stores one part at a time.
pub trait PartFormat: Send {
    /// The format's name, as in the registry.
    fn name(&self) -> &'static str;

    /// Extension of the file that holds the vectors, without the dot.
    fn extension(&self) -> &'static str;

    /// What the names of further files of each part end in (`ids.csv`).
    fn sidecars(&self) -> &'static [&'static str];

    /// Whether the vector file itself carries the manifest; if not, one is written beside a single-file output.
    fn embeds_manifest(&self) -> bool;

    /// The manifest that a finished vector file carries, if it can be read and the format
    /// [embeds](Self::embeds_manifest) one.
    fn read_manifest(&self, file: &Path) -> Option<RunManifest>;

    /// Bytes to leave free at the start of [`StoredPart::vector_file`], so that a format whose rows are raw can put
    /// its header there and link the file instead of copying it.
    fn free_bytes(&self) -> u64;

    /// Whether a single-file output is put together from parts by [`assemble`](Self::assemble). A format that says no
    /// gets the whole run as one part, encoded at the end.
    fn assembles(&self) -> bool;

    /// Writes a part to `files`, replacing what an earlier attempt left there. Equal rows and manifest must give equal
    /// bytes. The store syncs and renames the files.
    fn encode(&mut self, part: &StoredPart<'_>, manifest: &RunManifest, files: &PartFiles) -> Result<(), SinkError>;

    /// Writes the rows of `parts` (two or more vector files, in order) to one file, replacing what is there. Called
    /// only if [`assembles`](Self::assembles).
    fn assemble(&mut self, parts: &[PathBuf], manifest: &RunManifest, file: &Path) -> Result<(), SinkError>;
}

/// Where a part's files go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartFiles {
    /// The file with the vectors.
    pub vectors: PathBuf,
    /// One for each of [`PartFormat::sidecars`].
    pub sidecars: Vec<PathBuf>,
}

impl PartFiles {
    /// All of them, sidecars first: the order in which they get their names.
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
}

impl StoredPart<'_> {
    /// Number of rows; 0 only when the whole run has none.
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

    /// Reads the rows.
    pub fn reader(&self) -> Result<RowReader, SinkError> {
        RowReader::open(self.paths, self.extent, self.free, self.dim * self.element.bytes(), true)
    }

    /// Reads everything but the vectors, which then cost nothing.
    pub fn labels(&self) -> Result<RowReader, SinkError> {
        RowReader::open(self.paths, self.extent, self.free, self.dim * self.element.bytes(), false)
    }

    /// The file with the vectors alone: [`PartFormat::free_bytes`], then little-endian elements, `[rows, dim]`,
    /// row-major. A format may write to the free bytes and hard-link the file.
    pub fn vector_file(&self) -> &Path {
        &self.paths.vectors
    }
}

/// Entry points for fuzzing: parsers of what is found on disk. No promise is made about them.
#[doc(hidden)]
pub mod fuzzing {
    /// Parses a journal; the rows of its sealed parts.
    pub fn journal(bytes: &[u8]) -> Result<Option<u64>, String> {
        Ok(super::journal::State::parse(bytes)?.map(|state| state.watermark))
    }

    /// Parses the frames of a part's log; the number of rows.
    pub fn row_log(bytes: &[u8]) -> Option<usize> {
        let mut frames = super::log::Frames::new(bytes, bytes.len() as u64);
        let mut rows = 0;
        while frames.advance().ok()? {
            rows += frames.rows();
        }
        Some(rows)
    }
}
