//! Exit codes.

use std::error::Error;
use std::io::ErrorKind;

use foveate::embed::EmbedError;
use foveate::encode::EncodeError;
use foveate::lab::LabError;
use foveate::model::{HubError, ModelError};
use foveate::pack::PackError;
use foveate::pipeline::RunError;
use foveate::sink::SinkError;
use foveate::source::{FetchError, SourceError};
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
        if error.is::<Usage>() || error.chain().any(is_final) {
            return Self::Usage;
        }
        match (error.downcast_ref(), error.downcast_ref()) {
            (Some(LabError::Interrupted), _) => Self::Interrupted,
            (_, Some(RunError::TooManyFailures { .. })) => Self::Failures,
            _ => Self::Fault,
        }
    }
}

/// Returns true if the same command would fail in the same way, however often it is repeated, and nothing was done:
/// a scheduler need not try again. What another process, a network or a disk may mend is not final.
fn is_final(cause: &(dyn Error + 'static)) -> bool {
    if let Some(error) = cause.downcast_ref() {
        return match error {
            VerifyError::Embed(error) => embed_is_final(error),
            VerifyError::Run(error) => run_is_final(error),
            _ => false,
        };
    }
    if let Some(error) = cause.downcast_ref() {
        return match error {
            PackError::Embed(error) => embed_is_final(error),
            PackError::Run(error) => run_is_final(error),
            PackError::DecodeScale(_) => true,
            _ => false,
        };
    }
    cause.downcast_ref().is_some_and(embed_is_final)
        || cause.downcast_ref().is_some_and(run_is_final)
        || cause.downcast_ref().is_some_and(sink_is_final)
        || cause.downcast_ref().is_some_and(source_is_final)
}

fn embed_is_final(error: &EmbedError) -> bool {
    match error {
        EmbedError::Model(error) => match error {
            ModelError::Hub(error) => matches!(error, HubError::NotFound { .. }),
            ModelError::Read { cause, .. } => cause.kind() == ErrorKind::NotFound,
            _ => true,
        },
        EmbedError::Source(error) => source_is_final(error),
        EmbedError::Sink(error) => sink_is_final(error),
        EmbedError::Update(error) => run_is_final(error),
        EmbedError::Encode(error) => matches!(error, EncodeError::Unsupported(_) | EncodeError::Form { .. }),
        // Another machine may have the device.
        EmbedError::Device { .. } | EmbedError::Preprocess(_) => false,
        _ => true,
    }
}

fn run_is_final(error: &RunError) -> bool {
    match error {
        // Checked before anything is written: a batch that is too large for the encoder, for example.
        RunError::Config(_) => true,
        // With containers, vectors may have been made by then, but the output is as it was.
        RunError::TooManyRemoved { .. } | RunError::EmptyFolder { .. } | RunError::NothingInCommon { .. } => true,
        RunError::Sink(error) => sink_is_final(error),
        RunError::Source(error) => source_is_final(error),
        _ => false,
    }
}

fn sink_is_final(error: &SinkError) -> bool {
    match error {
        SinkError::Exists(_)
        | SinkError::OtherRun(_)
        | SinkError::OtherCommand { .. }
        | SinkError::BadOutput { .. }
        | SinkError::Unsupported(_)
        | SinkError::Missing { .. }
        | SinkError::Unconditional(_) => true,
        SinkError::Store { source, .. } => matches!(source.downcast_ref(), Some(FetchError::Refused(_))),
        _ => false,
    }
}

fn source_is_final(error: &SourceError) -> bool {
    match error {
        SourceError::Io { source, .. } => {
            let refused = source.get_ref().and_then(|inner| inner.downcast_ref());
            matches!(refused, Some(FetchError::Refused(_) | FetchError::NotFound(_)))
        }
        SourceError::Interrupted { .. } => false,
        _ => true,
    }
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
