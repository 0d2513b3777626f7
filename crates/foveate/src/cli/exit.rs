//! Exit codes.

use std::process::ExitCode;

use foveate::lab::LabError;

/// How the program ends, as documented in `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The job is complete; failures of single inputs, if any, are recorded.
    Complete,
    /// Something stopped the job, or kept it from starting.
    Fault,
    /// The command line cannot work; nothing was done.
    Usage,
    /// More inputs failed than was allowed, or all of them.
    Failures,
    /// Interrupted by a signal; what was finished is committed.
    Interrupted,
}

impl Exit {
    /// How the program ends with an error.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        match error.downcast_ref::<LabError>() {
            _ if error.is::<Usage>() => Self::Usage,
            Some(LabError::Interrupted) => Self::Interrupted,
            _ => Self::Fault,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Complete => 0,
            Exit::Fault => 1,
            // As clap does when it cannot understand the arguments.
            Exit::Usage => 2,
            Exit::Failures => 3,
            Exit::Interrupted => 130,
        })
    }
}

/// A command line that cannot work: exit code 2. Nothing was written for it.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct Usage(#[from] anyhow::Error);

impl Usage {
    /// The error itself, where it is one of these: its causes are to be told, not that it is about the command line.
    pub(crate) fn unwrap(error: &anyhow::Error) -> &anyhow::Error {
        error.downcast_ref::<Self>().map_or(error, |usage| &usage.0)
    }
}
