use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use foveate_core::{BoxError, FaultScope};

use crate::{Finished, OtherRun};

/// The reason why storing failed. Always a run fault; committed data stays.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The output exists and must not be changed.
    #[error("{} already exists", .0.display())]
    Exists(PathBuf),
    /// The output is complete and belongs to this same job, so nothing is left to do.
    #[error("{} is already complete", .0.path.display())]
    AlreadyComplete(Box<Finished>),
    /// An interrupted run exists, and resuming was not requested.
    #[error("{} holds an interrupted run", .0.display())]
    Interrupted(PathBuf),
    /// The output belongs to another job.
    #[error("{} {} of another job: {}", .0.path.display(), .0.state.is(), .0.difference)]
    OtherRun(Box<OtherRun>),
    /// The output is not the one that this run began with.
    #[error("another command replaced {} while this one was at work", .0.display())]
    Replaced(PathBuf),
    /// The output's files are being put in place, or this was interrupted.
    #[error("{} is being put in place, or that was interrupted", .0.display())]
    Updating(PathBuf),
    /// Another command's output is there, which is never replaced and has no vectors that could be read.
    #[error("{} was made by `foveate {command}`", .path.display())]
    OtherCommand {
        /// The output, or its record.
        path: PathBuf,
        /// The command's name.
        command: String,
    },
    /// Another process is writing there.
    #[error("{} is being written by another process", .0.display())]
    Locked(PathBuf),
    /// The output does not match the options.
    #[error("cannot write to {}", .path.display())]
    BadOutput {
        /// The output.
        path: PathBuf,
        /// The reason.
        source: BoxError,
    },
    /// The sink does not support the options.
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
    /// The operating system returned an error.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// The action that failed ("write", "sync").
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The store did not do what it was asked, after retries.
    #[error("cannot {action} the object store")]
    Store {
        /// The request ("write to", "list").
        action: &'static str,
        /// The cause, with the object's address.
        source: BoxError,
    },
    /// A store has an object with another content than this run's, which another writer put there.
    #[error("{} was written by another run, with other bytes", .0.display())]
    Differs(PathBuf),
    /// A store replaces an object even if the request says to create it.
    #[error("the store of {0} ignores conditional writes, so it cannot keep two writers apart")]
    Unconditional(String),
    /// The disk holds data that this program did not write.
    #[error("{} is damaged", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage.
        source: BoxError,
    },
    /// A file that belongs to an output is not there: the manifest, or one that it names.
    #[error("{} is missing", .path.display())]
    Missing {
        /// The file, under the name that it needs.
        path: PathBuf,
        /// The evidence.
        source: BoxError,
    },
    /// A library that writes the format returned an error.
    #[error("cannot write {}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The library's message.
        source: BoxError,
    },
    /// Methods were called out of order, or the rows do not fit the manifest.
    #[error("sink misused: {0}")]
    Misuse(String),
}

impl SinkError {
    /// Turns an operating-system error into [`NoSpace`](Self::NoSpace) or [`Io`](Self::Io), for `map_err`. The current
    /// folder is named by its whole path.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| {
            let current = (path == Path::new(".")).then(|| std::env::current_dir().ok()).flatten();
            let path = current.unwrap_or_else(|| path.to_owned());
            match source.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::NoSpace { path, source },
                _ => Self::Io { action, path, source },
            }
        }
    }

    /// Makes the error for a file that differs from what this program wrote.
    pub fn damaged(path: &Path, source: impl Into<BoxError>) -> Self {
        Self::Damaged { path: path.to_owned(), source: source.into() }
    }

    /// Makes the error for a file of an output that is not there.
    pub fn missing(path: &Path, source: impl Into<BoxError>) -> Self {
        Self::Missing { path: path.to_owned(), source: source.into() }
    }

    /// Turns the error of opening a file that belongs to an output into [`Missing`](Self::Missing) or [`Self::io`]'s,
    /// for `map_err`.
    pub fn opening(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| match source.kind() {
            ErrorKind::NotFound => Self::missing(path, "the output has such a file"),
            _ => Self::io("open", path)(source),
        }
    }

    /// Always [`FaultScope::Run`].
    pub fn scope(&self) -> FaultScope {
        FaultScope::Run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_folder_is_named_by_its_path() {
        let error = SinkError::io("sync", Path::new("."))(ErrorKind::Other.into()).to_string();
        assert_eq!(error, format!("cannot sync {}", std::env::current_dir().unwrap().display()));
    }
}
