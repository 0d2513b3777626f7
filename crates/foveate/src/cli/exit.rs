//! Exit codes.

use std::error::Error;

use foveate::embed::EmbedError;
use foveate::encode::EncodeError;
use foveate::lab::LabError;
use foveate::sink::SinkError;
use foveate::verify::VerifyError;

/// The exit status of the program, as documented in `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The job is complete; failures of single inputs, if any, are recorded.
    Complete,
    /// An error stopped the job or prevented its start.
    Fault,
    /// The command line cannot work; nothing was done.
    Usage,
    /// More inputs failed than allowed, or all of them.
    Failures,
    /// A signal interrupted the job; finished work is committed.
    Interrupted,
}

impl Exit {
    /// Returns the code that the process ends with.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::Fault => 1,
            // clap uses the same code for arguments that it cannot parse.
            Self::Usage => 2,
            Self::Failures => 3,
            Self::Interrupted => 130,
        }
    }

    /// Returns the exit status for an error.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        match error.downcast_ref::<LabError>() {
            _ if error.is::<Usage>() || error.chain().any(is_usage) => Self::Usage,
            Some(LabError::Interrupted) => Self::Interrupted,
            _ => Self::Fault,
        }
    }
}

/// Returns true if the encoder or the output refuses the options. That is known only once the model is open, and before
/// anything is written.
fn is_usage(cause: &(dyn Error + 'static)) -> bool {
    let embed = match cause.downcast_ref() {
        Some(VerifyError::Embed(error)) => Some(error),
        _ => cause.downcast_ref(),
    };
    matches!(
        embed,
        Some(
            EmbedError::Encode(EncodeError::Unsupported(_) | EncodeError::Form { .. })
                | EmbedError::Sink(SinkError::OtherRun(_))
                | EmbedError::NoOutput(_)
                | EmbedError::Cache(_)
                | EmbedError::CacheOfBatches(..)
        )
    )
}

/// A command line that cannot work: exit code 2. The command has written nothing.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct Usage(#[from] anyhow::Error);

impl Usage {
    /// Returns the inner error of a usage error, so that messages show its causes, not that it concerns the command
    /// line.
    pub(crate) fn unwrap(error: &anyhow::Error) -> &anyhow::Error {
        error.downcast_ref::<Self>().map_or(error, |usage| &usage.0)
    }
}
