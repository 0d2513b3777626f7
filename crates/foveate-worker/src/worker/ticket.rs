//! A message on its way through the worker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use foveate_queue::Delivery;

use super::circuit_breaker::Cause;
use super::leases::{Hold, Key};
use super::message_parts::MessageParts;

/// A message that the worker holds, or one image of it, from its receipt to its settlement.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) key: Key,
    pub(super) hold: Hold,
    /// The index of its queue.
    pub(super) queue: usize,
    pub(super) delivery: Arc<Delivery>,
    /// The job's id, or the message's.
    pub(super) id: String,
    /// The job's idempotency key, or else the id.
    pub(super) idempotency_key: String,
    pub(super) task: String,
    /// The server or bucket of the image, if the message is a valid job.
    pub(super) source: Option<Cause>,
    /// The site that the image is on, if it has a URL.
    pub(super) site: Option<String>,
    /// The address that takes the result.
    pub(super) callback: Option<String>,
    /// True if it takes failures, too.
    pub(super) callback_failures: bool,
    /// The caller's own JSON.
    pub(super) metadata: Option<String>,
    /// Its place among the images of its message, if there are several.
    pub(super) parts: Option<Arc<MessageParts>>,
    /// The time at which the worker received it.
    pub(super) since: Instant,
    pub(super) span: tracing::Span,
}

impl Ticket {
    /// The server that takes the result.
    pub(super) fn receiver(&self) -> Option<Cause> {
        self.callback.as_deref().and_then(foveate_net::server).map(Cause::Receiver)
    }

    /// The time for which the message has been failing, as far as workers noted it.
    pub(super) fn failing_for(&self) -> Duration {
        self.delivery.failing_since.and_then(|since| since.elapsed().ok()).unwrap_or_default()
    }
}
