//! Other runs: those that wrote an output, or began to.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempPath;

/// A finished run's output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Files, the main one first, the failures file last.
    pub files: Vec<PathBuf>,
    /// Vectors in the output, including earlier sessions of a resumed run.
    pub rows: u64,
    /// Recorded failures, including earlier sessions.
    pub failures: u64,
    /// The reason why temporary files could not be removed, if any are left. They are harmless; the next run removes
    /// them.
    pub leftover: Option<String>,
}

/// A complete output of the same job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The file that marks the output as complete.
    pub path: PathBuf,
    /// The output, as its run reported it.
    pub published: Published,
    /// The inputs of its run, if they were recorded.
    pub inputs: Option<RecordedInputs>,
}

/// An output of another job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherRun {
    /// The output.
    pub path: PathBuf,
    /// The progress of its run.
    pub state: RunState,
    /// The differences between its run and this one.
    pub difference: Difference,
    /// The inputs of its run, if they were recorded.
    pub inputs: Option<RecordedInputs>,
}

/// The progress of an output's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// The output is complete.
    Complete,
    /// The run was interrupted.
    Interrupted,
    /// The run was interrupted while it replaced a complete output.
    Replacing,
}

impl RunState {
    pub(crate) fn is(self) -> &'static str {
        match self {
            Self::Complete => "is the complete output",
            Self::Interrupted => "holds an interrupted run",
            Self::Replacing => "is being replaced by an interrupted run",
        }
    }
}

/// The differences between two runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Each setting that differs, in words: `pooling: cls → mean`.
    pub settings: Vec<String>,
    /// The difference between the inputs, in words: `1 photo added: b.jpg`.
    pub inputs: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<&str> = self.settings.iter().chain(&self.inputs).map(String::as_str).collect();
        f.write_str(&all.join(", "))
    }
}

/// The record of an output's inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedInputs {
    pub(crate) file: RecordFile,
    pub(crate) len: u64,
    pub(crate) is_complete: bool,
}

/// A file.
#[derive(Clone, Debug)]
pub(crate) enum RecordFile {
    /// One of the output.
    Lasting(PathBuf),
    /// A copy of an object, which goes with its last owner.
    Temporary(Arc<TempPath>),
}

impl RecordFile {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Lasting(path) => path,
            Self::Temporary(path) => path,
        }
    }
}

impl PartialEq for RecordFile {
    fn eq(&self, other: &Self) -> bool {
        self.path() == other.path()
    }
}

impl Eq for RecordFile {}

impl RecordedInputs {
    /// Returns true if all of the run's inputs are recorded. An interrupted run has recorded those below its watermark.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }
}
