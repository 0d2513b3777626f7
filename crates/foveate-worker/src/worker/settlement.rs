//! The ways in which messages leave the worker.

use std::time::{Duration, SystemTime};

use foveate_queue::DeadLetter;

/// The way in which a message leaves the worker.
#[derive(Debug)]
pub(super) enum How {
    Acknowledge,
    /// Acknowledges a message that asks for nothing.
    Skip,
    PutBack(PutBack),
    DeadLetter(DeadLetter),
}

/// A message's return to its queue.
#[derive(Debug)]
pub(super) struct PutBack {
    pub(super) why: Why,
    pub(super) delay: Duration,
    /// Since when it fails.
    pub(super) failing_since: Option<SystemTime>,
    /// If it returns as a copy: the deliveries that the copy counts on from.
    pub(super) copied: Option<u32>,
}

/// The reason why a message returns to its queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Why {
    /// It failed, and is retried.
    Failed,
    /// The worker's own settings refuse it.
    Refused,
    /// It was not tried, or failed in an outage.
    Held,
}

impl How {
    /// The name in metrics.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Acknowledge => "acknowledged",
            Self::Skip => "skipped",
            Self::PutBack(PutBack { why: Why::Failed, .. }) => "released",
            Self::PutBack(PutBack { why: Why::Refused, .. }) => "refused",
            Self::PutBack(PutBack { why: Why::Held, .. }) => "held",
            Self::DeadLetter(_) => "dead",
        }
    }
}
