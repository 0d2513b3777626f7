use foveate_core::Stage;
use foveate_lane::LaneError;
use foveate_preprocess::PreprocessError;
use foveate_sink::{Failure, SinkError};
use foveate_source::SourceError;

use crate::FailurePolicy;

/// Why a run stopped before its end. What was committed stays, and the same command continues it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The listing broke.
    #[error("list: {0}")]
    Source(#[from] SourceError),
    /// No image can be prepared.
    #[error(transparent)]
    Preprocess(#[from] PreprocessError),
    /// The encoder failed.
    #[error("encode: {0}")]
    Encode(#[from] LaneError),
    /// Nothing can be stored.
    #[error("write: {0}")]
    Sink(#[from] SinkError),
    /// More items failed than the policy allows. The batch with the last of them is not stored, so that it is tried
    /// again when the run is continued.
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
        /// The failure that broke it.
        last: Box<Failure>,
    },
    /// A thread of a stage panicked: a defect in this program.
    #[error("{stage}: panicked: {message}; this is a defect, please report it")]
    Panicked {
        /// The stage.
        stage: Stage,
        /// What the panic said.
        message: String,
    },
    /// The system gives no more threads.
    #[error("cannot start thread {name}: {source}")]
    Thread {
        /// What it would have been called.
        name: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The configuration cannot work.
    #[error("{0}")]
    Config(String),
    /// The counts do not add up: a defect in this program.
    #[error("{0}; this is a defect, please report it")]
    Accounting(String),
}
