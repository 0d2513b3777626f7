use std::error::Error;
use std::mem::discriminant;
use std::sync::Arc;

/// The error of a client library. It is shared, because one failed request may concern many messages.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// The error of a queue operation.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The broker does not answer or is overloaded; a retry may succeed.
    #[error("queue {queue}: {reason}")]
    Unreachable {
        /// [`crate::JobQueue::name`].
        queue: String,
        /// The reason.
        reason: String,
        /// The cause, if the client library gave one.
        source: Option<Cause>,
    },
    /// The broker refused, for example because there is no such queue or no permission; a retry does not help.
    #[error("queue {queue}: {reason}")]
    Refused {
        /// [`crate::JobQueue::name`].
        queue: String,
        /// The broker's message, and the remedy.
        reason: String,
        /// The cause, if the client library gave one.
        source: Option<Cause>,
    },
    /// The queue, or a part of it, does not exist, and the options do not ask to create it.
    #[error("queue {queue}: there is no {what}")]
    Absent {
        /// [`crate::JobQueue::name`].
        queue: String,
        /// The missing part.
        what: String,
    },
    /// The queue cannot have the lease that the options ask for, or has none.
    #[error("{0}")]
    Lease(String),
    /// The lease had ended; another worker has the message or will have it.
    #[error("the lease on this message has ended")]
    LeaseLost,
    /// The message is larger than the broker takes.
    #[error("message of {bytes} bytes; this queue takes at most {limit}")]
    TooLarge {
        /// The message's size.
        bytes: usize,
        /// The broker's limit.
        limit: usize,
    },
    /// The options contradict each other or the queue.
    #[error("{0}")]
    Options(String),
}

impl QueueError {
    /// A failure that a retry may not meet.
    pub fn unreachable(queue: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Unreachable { queue: queue.into(), reason: reason.into(), source: None }
    }

    /// A failure that every retry would repeat.
    pub fn refused(queue: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Refused { queue: queue.into(), reason: reason.into(), source: None }
    }

    /// Adds the client library's error, unless this error has no room for one. Leave out errors that may repeat
    /// credentials, in their text or in their `Debug` output.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        if let Self::Unreachable { source, .. } | Self::Refused { source, .. } = &mut self {
            *source = Some(Arc::from(cause.into()));
        }
        self
    }

    /// Returns true if a retry may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}

/// Errors are equal if they are of one kind and say the same. Their sources are not compared.
impl PartialEq for QueueError {
    fn eq(&self, other: &Self) -> bool {
        discriminant(self) == discriminant(other) && self.to_string() == other.to_string()
    }
}

impl Eq for QueueError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_kept() {
        let cause = std::io::Error::other("reset");
        let error = QueueError::unreachable("jobs", "reset").because(cause);
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("reset"));
        assert!(error.is_transient() && QueueError::LeaseLost.because(std::io::Error::other("x")).source().is_none());
    }
}
