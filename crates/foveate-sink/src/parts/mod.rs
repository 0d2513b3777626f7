//! The crash-safe store for file formats.
//!
//! A format defines how one part is written ([`PartFormat`]). [`PartSink`] turns it into a
//! [`VectorSink`](crate::VectorSink) that survives being killed at any moment:
//!
//! - A part covers a **fixed range of source indexes**, so its bytes depend on its rows alone, not on batch size,
//!   commits, workers or interruptions.
//! - `commit` publishes a segment: a small immutable file with the rows, failures and input records since the last
//!   commit, synced and then renamed.
//! - When the watermark passes a part's end, the part is encoded from its segments. One segment that names the part's
//!   files, and has the failures and input records, takes their place.
//! - `finish` prepares all remaining files, writes a plan, and follows it. The file that means "complete" comes last.
//!
//! All of this happens in a staging folder on the output's own file system ([`OutputNames::staging`]). A file lock
//! holds it for the sink's lifetime. See [`OutputNames`] for the file names. In an object store, sealed parts are
//! uploaded with their segments; segments of the part in progress are in a temporary folder.
//!
//! [`FileParts`] does the same with parts that its caller writes, of any number of items.

pub(crate) mod block;
mod finish;
pub(crate) mod frame;
mod run;
mod seal;
pub(crate) mod segment;
mod sink;
mod taken;

use std::path::PathBuf;

use segment::Segment;

pub use block::{RowBlock, RowReader};
pub use sink::{FileParts, PartSink, open};

use crate::{Element, RunManifest, SinkError, SinkOptions};

#[cfg(doc)]
use crate::OutputNames;

/// A file format that stores one part at a time.
pub trait PartFormat: Send {
    /// The format's name, as in the registry.
    fn name(&self) -> &'static str;

    /// Extension of the file that holds the vectors, without the dot.
    fn extension(&self) -> &'static str;

    /// Name endings of each part's further files (`ids.csv`); by default there are none.
    fn sidecars(&self) -> &'static [&'static str] {
        &[]
    }

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
}

/// The paths of a part's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartFiles {
    /// The file with the vectors.
    pub vectors: PathBuf,
    /// One for each of [`PartFormat::sidecars`].
    pub sidecars: Vec<PathBuf>,
}

/// The rows of one part, complete and on disk.
#[derive(Debug)]
pub struct StoredPart<'a> {
    segments: &'a [Segment],
    rows: u64,
    dim: usize,
    element: Element,
    columns: &'a [String],
}

impl StoredPart<'_> {
    /// Number of rows; 0 only if the whole run has none.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Components of each vector.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The type of stored components.
    pub fn element(&self) -> Element {
        self.element
    }

    /// The names of the columns; see [`RowBlock::column`].
    pub fn columns(&self) -> &[String] {
        self.columns
    }

    /// Reads the rows and verifies their checksums.
    pub fn reader(&self) -> RowReader {
        RowReader::new(self.segments.to_vec(), self.dim * self.element.bytes(), self.columns.len())
    }
}

/// Entry points for fuzzing: parsers of on-disk data and of objects. Not a stable interface.
#[doc(hidden)]
pub mod fuzzing {
    /// Parses a claim and a plan.
    pub fn records(bytes: &[u8]) -> (bool, bool) {
        (crate::site::Claim::parse(bytes).is_ok(), crate::commit::CommitPlan::of_any(bytes).is_ok())
    }

    /// Parses the frames of a segment, of rows with as many `columns`; returns the number of rows.
    pub fn segment(bytes: &[u8], columns: usize) -> Option<usize> {
        use super::frame::{FrameKind, FrameReader};
        let mut frames = FrameReader::new(bytes, bytes.len() as u64);
        let mut rows = 0;
        while let Some(kind) = frames.next().ok()? {
            if kind == FrameKind::Rows {
                let mut block = super::RowBlock::default();
                block.parse(&frames.payload, 4, columns)?;
                rows += block.len();
            }
        }
        Some(rows)
    }
}
