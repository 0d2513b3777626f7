use std::path::PathBuf;

use foveate_core::FaultScope;

/// Why nothing can be stored. Always a run fault; what was committed stays.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The output exists and may not be touched.
    #[error("{} already exists; pass --overwrite to replace it", .0.display())]
    Exists(PathBuf),
    /// An interrupted run is there and resuming was not asked for.
    #[error("{} holds an interrupted run; pass --resume to continue it or --overwrite to start anew", .0.display())]
    Interrupted(PathBuf),
    /// The interrupted run was another job.
    #[error("cannot resume {}: it was started with other settings:\n{difference}", .path.display())]
    OtherRun {
        /// The output.
        path: PathBuf,
        /// One line per setting: name, then, now.
        difference: String,
    },
    /// Another process is writing there.
    #[error("{} is being written by another process", .0.display())]
    Locked(PathBuf),
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was being done ("write", "sync").
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// What is on disk is not what this program wrote.
    #[error("{} is damaged: {reason}", .path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A library that writes the format failed.
    #[error("cannot write {}: {reason}", .path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// What it said.
        reason: String,
    },
    /// Methods were called out of order, or the rows do not fit the manifest.
    #[error("sink misused: {0}")]
    Misuse(String),
}

impl SinkError {
    /// Always [`FaultScope::Run`].
    pub fn scope(&self) -> FaultScope {
        FaultScope::Run
    }
}
