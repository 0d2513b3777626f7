use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use foveate_core::{BoxError, FaultScope};

/// Why nothing can be stored. Always a run fault; what was committed stays.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The output exists and may not be touched.
    #[error("{} already exists", .0.display())]
    Exists(PathBuf),
    /// The output is there, complete, and of this very job: nothing is left to do.
    #[error("{} is already complete", .0.display())]
    AlreadyComplete(PathBuf),
    /// An interrupted run is there and resuming was not asked for.
    #[error("{} holds an interrupted run", .0.display())]
    Interrupted(PathBuf),
    /// The interrupted run was another job.
    #[error("cannot resume {}: it was started with other settings: {difference}", .path.display())]
    OtherRun {
        /// The output.
        path: PathBuf,
        /// Each setting that differs, as `name: then → now`.
        difference: String,
    },
    /// Another process is writing there.
    #[error("{} is being written by another process", .0.display())]
    Locked(PathBuf),
    /// The output cannot be what the options say.
    #[error("cannot write to {}", .path.display())]
    BadOutput {
        /// The output.
        path: PathBuf,
        /// Why.
        source: BoxError,
    },
    /// The sink cannot do what the options ask for.
    #[error("not supported by this sink: {0}")]
    Unsupported(String),
    /// The disk or the quota is full.
    #[error("no space left to write {}", .path.display())]
    NoSpace {
        /// The file being written.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The operating system refused.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// What was being done ("write", "sync").
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// What is on disk is not what this program wrote.
    #[error("{} is damaged", .path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        source: BoxError,
    },
    /// A library that writes the format failed.
    #[error("cannot write {}", .path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// What it said.
        source: BoxError,
    },
    /// Methods were called out of order, or the rows do not fit the manifest.
    #[error("sink misused: {0}")]
    Misuse(String),
}

impl SinkError {
    /// Turns an operating-system error into [`NoSpace`](Self::NoSpace) or [`Io`](Self::Io), for `map_err`.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::NoSpace { path: path.to_owned(), source },
            _ => Self::Io { action, path: path.to_owned(), source },
        }
    }

    /// A file that is not as this program wrote it.
    pub fn damaged(path: &Path, source: impl Into<BoxError>) -> Self {
        Self::Damaged { path: path.to_owned(), source: source.into() }
    }

    /// Always [`FaultScope::Run`].
    pub fn scope(&self) -> FaultScope {
        FaultScope::Run
    }
}
