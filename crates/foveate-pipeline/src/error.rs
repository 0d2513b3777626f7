use foveate_core::Stage;
use foveate_lane::LaneError;
use foveate_preprocess::PreprocessError;
use foveate_sink::{Failure, SinkError};
use foveate_source::SourceError;

use crate::FailurePolicy;

/// Why a run stopped before its end. Committed output stays, and the same command continues the run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The listing failed.
    #[error("list: {0}")]
    Source(#[from] SourceError),
    /// No preprocessor can be opened.
    #[error(transparent)]
    Preprocess(#[from] PreprocessError),
    /// The encoder failed.
    #[error("encode: {0}")]
    Encode(#[from] LaneError),
    /// The sink failed.
    #[error("write: {0}")]
    Sink(#[from] SinkError),
    /// More items failed than the policy allows. The batch with the last of them is not stored, so a continued run
    /// retries it.
    #[error(
        "{failed} of {seen} inputs failed, more than the limit of {limit}; the last: {} ({}: {})",
        .last.id, .last.stage, .last.reason
    )]
    TooManyFailures {
        /// Failures so far.
        failed: u64,
        /// Inputs so far.
        seen: u64,
        /// The policy.
        limit: FailurePolicy,
        /// The failure that exceeded the policy.
        last: Box<Failure>,
    },
    /// A thread of a stage panicked: a defect in this program.
    #[error("{stage}: panicked: {message}; this is a defect, please report it")]
    Panicked {
        /// The stage.
        stage: Stage,
        /// The panic's message.
        message: String,
    },
    /// The system refused another thread.
    #[error("cannot start thread {name}: {source}")]
    Thread {
        /// The thread's name.
        name: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The configuration is invalid.
    #[error("{0}")]
    Config(String),
    /// The counts do not add up: a defect in this program.
    #[error("{0}; this is a defect, please report it")]
    Accounting(String),
}
