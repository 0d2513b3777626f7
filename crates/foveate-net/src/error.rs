use std::time::Duration;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NetError {
    /// The reason, one line, with what would help where something would.
    pub reason: String,
    /// Whether the same request may succeed later.
    pub transient: bool,
    /// How long the other side asked to wait, where it did.
    pub retry_after: Option<Duration>,
}
