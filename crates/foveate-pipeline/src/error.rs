use std::path::PathBuf;

use crate::lane::LaneError;
use foveate_core::Stage;
use foveate_preprocess::PreprocessError;
use foveate_sink::{Failure, SinkError};
use foveate_source::{FetchError, SourceError};

use crate::FailurePolicy;

/// The reason why a run stopped before its end. Committed output stays, and the same command continues the run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The listing failed.
    #[error("list: {0}")]
    Source(#[from] SourceError),
    /// A folder or a store of the source is gone. None of its items is recorded as failed for that.
    #[error("read: {0}")]
    Fetch(#[from] FetchError),
    /// More items in a row could not be read than [`Config::max_unreadable`](crate::Config::max_unreadable) allows, or
    /// neither the last items nor an earlier one could be read. They are not stored, so a continued run retries them.
    #[error(
        "{count} inputs in a row cannot be read, as if their disk or store were gone; the first: {} ({})",
        .first.id, .first.reason
    )]
    Unreadable {
        /// Items in a row.
        count: u64,
        /// The failure of the first.
        first: Box<Failure>,
    },
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
    #[error("{failed} of {seen} inputs failed, more than the limit of {limit}{}", last_failure(*limit, .last.as_deref()))]
    TooManyFailures {
        /// Failures so far, those of earlier sessions included.
        failed: u64,
        /// Inputs so far, those of earlier sessions included.
        seen: u64,
        /// The policy.
        limit: FailurePolicy,
        /// The failure that exceeded the policy; `None` if those of earlier sessions do.
        last: Option<Box<Failure>>,
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
    /// An update would remove more of an output's inputs than it may. The output is as it was.
    #[error("the update would remove {removed} of the output's {inputs} inputs, more than the limit of {limit}")]
    TooManyRemoved {
        /// Inputs that are gone.
        removed: u64,
        /// The output's inputs.
        inputs: u64,
        /// The limit.
        limit: FailurePolicy,
    },
    /// A folder has nothing of what the output has from there. The output is as it was.
    #[error(
        "{} is there but empty, as if its disk were not mounted, and the output has {id} from there", .folder.display()
    )]
    EmptyFolder {
        /// The folder.
        folder: PathBuf,
        /// An input of the output that was below it.
        id: String,
    },
    /// An update has no input in common with its output. The output is as it was.
    #[error("none of the inputs is in the output: the output has {known}, the inputs have {listed}")]
    NothingInCommon {
        /// An input of the output.
        known: String,
        /// An input that is listed.
        listed: String,
    },
    /// The configuration is invalid.
    #[error("{0}")]
    Config(String),
    /// The counts do not add up: a defect in this program.
    #[error("{0}; this is a defect, please report it")]
    Accounting(String),
}

fn last_failure(limit: FailurePolicy, last: Option<&Failure>) -> String {
    let which = if matches!(limit, FailurePolicy::Count(0)) { "first" } else { "last" };
    last.map_or_else(String::new, |last| format!("; the {which}: {} ({}: {})", last.id, last.stage, last.reason))
}
