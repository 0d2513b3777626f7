/// Why a queue could not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The broker does not answer, or asks for patience: trying again may help.
    #[error("queue {queue}: {reason}")]
    Unreachable {
        /// [`crate::JobQueue::name`].
        queue: String,
        /// What happened.
        reason: String,
    },
    /// The broker answered no: no such queue, no permission. Trying again does not help.
    #[error("queue {queue}: {reason}")]
    Refused {
        /// [`crate::JobQueue::name`].
        queue: String,
        /// What it said, and what would help.
        reason: String,
    },
    /// The lease had ended: the message is, or will be, somebody else's.
    #[error("the lease on this message has ended")]
    LeaseLost,
    /// The message is larger than the broker takes.
    #[error("message of {bytes} bytes, more than the {limit} that this queue takes")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The broker's limit.
        limit: usize,
    },
    /// The options make no sense.
    #[error("{0}")]
    Options(String),
}

impl QueueError {
    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}
