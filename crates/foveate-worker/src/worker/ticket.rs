//! A message on its way through the worker.

use std::sync::Arc;
use std::time::Instant;

use foveate_queue::Delivery;

use super::leases::{Hold, Key};

/// A message that the worker holds, from its receipt to its settlement.
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
    /// The server that the image is on.
    pub(super) server: Option<String>,
    /// The address that takes the result.
    pub(super) callback: Option<String>,
    /// Whether it takes failures, too.
    pub(super) callback_failures: bool,
    /// The caller's own JSON.
    pub(super) metadata: Option<String>,
    /// When the worker received it.
    pub(super) since: Instant,
    pub(super) span: tracing::Span,
}
