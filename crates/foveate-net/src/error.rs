use std::fmt::Display;
use std::time::Duration;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NetError {
    /// The reason, one line, with what would help where something would. It names hosts, but never the rest of an
    /// address, which may be secret.
    pub reason: String,
    /// Whether the same request may succeed later.
    pub transient: bool,
    /// How long the other side asked to wait, where it did: an hour at most.
    pub retry_after: Option<Duration>,
}

impl NetError {
    /// The same request will fail again.
    pub(crate) fn permanent(reason: impl Display) -> Self {
        Self { reason: one_line(&reason.to_string()), transient: false, retry_after: None }
    }

    /// The same request may succeed later.
    pub(crate) fn transient(reason: impl Display) -> Self {
        Self { transient: true, ..Self::permanent(reason) }
    }
}

/// Options that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OptionsError(pub(crate) String);

/// Others' words may be part of a reason: neither their length nor their control characters become ours.
fn one_line(text: &str) -> String {
    const LONGEST: usize = 300;
    let tame = |c: char| if c.is_control() { ' ' } else { c };
    let mut line: String = text.chars().take(LONGEST).map(tame).collect();
    if text.chars().nth(LONGEST).is_some() {
        line.push('…');
    }
    line
}
