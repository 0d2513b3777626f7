#![doc = include_str!("../README.md")]

mod backend;
mod buried;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod job;
mod memory;
mod text;

use std::time::{Duration, SystemTime};

use async_trait::async_trait;

pub use backend::{OpenFuture, QueueBackend, QueueOptions, QueueRegistry};
pub use buried::{Buried, DeadLetter, Fate, Judge};
pub use error::{Cause, QueueError};
pub use job::{Callback, ImageRef, Job, JobError, JobInput};
pub use memory::MemoryQueue;
pub use text::one_line;

/// A broker's queue of jobs. Delivery is at least once: a message is leased to its receiver, and comes back when the
/// lease ends without an acknowledgement. Several tasks may call it at once, on the tokio runtime where the queue was
/// opened. It needs the runtime's clock and its network.
///
/// Methods on several messages return one result for each, in the given order. They take any number of messages and use
/// as few requests as the broker allows.
#[async_trait]
pub trait JobQueue: Send + Sync {
    /// The name in logs and metrics, without credentials.
    fn name(&self) -> &str;

    /// The length of a lease, unless it is extended.
    fn lease(&self) -> Duration;

    /// Deliveries after which the worker dead-letters a message; at least 1. The broker itself never does, because only
    /// the worker knows the stage and the reason.
    fn max_receive(&self) -> u32;

    /// Sends messages. Returns once the broker has stored them durably. A broker that deduplicates by id drops a second
    /// message with the same id for a while.
    async fn send(&self, messages: &[Message]) -> Vec<Result<Sent, QueueError>>;

    /// Receives up to `max` messages. Waits for about `wait` for the first one, and returns none if none came.
    ///
    /// # Errors
    /// [`QueueError`] if the broker fails. The next call re-establishes a lost connection.
    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError>;

    /// Removes messages. [`QueueError::LeaseLost`] if the lease had ended and the broker reports it.
    async fn acknowledge(&self, receipts: &[Receipt]) -> Vec<Result<(), QueueError>>;

    /// Extends leases: each ends [`Self::lease`] from now.
    async fn extend(&self, receipts: &[Receipt]) -> Vec<Result<(), QueueError>>;

    /// Releases messages: the broker delivers them again after `delay`.
    async fn release(&self, receipts: &[Receipt], delay: Duration) -> Vec<Result<(), QueueError>>;

    /// Replaces a message by a copy of the same id, whose deliveries count on from this delivery's
    /// [`received`](Delivery::received): a caller that does not count this delivery renews with one less. The copy has
    /// this delivery's [`failing_since`](Delivery::failing_since), and is durable before the message is removed. The
    /// broker delivers it after `delay`, or after the longest delay that the broker knows.
    ///
    /// # Errors
    /// [`QueueError`] if the broker fails. The message then comes back when its lease ends, perhaps beside its copy.
    async fn renew(&self, delivery: &Delivery, delay: Duration) -> Result<(), QueueError>;

    /// Moves a message to the dead letters, with its id, stage and reason. The dead letter is durable before the
    /// message is removed. Fields that do not fit beside the body are left out; a body that leaves no room for them is
    /// truncated.
    ///
    /// # Errors
    /// [`QueueError`] if the broker fails. The message then comes back when its lease ends.
    async fn dead_letter(&self, delivery: &Delivery, why: &DeadLetter) -> Result<(), QueueError>;

    /// Shows `judge` each dead letter that is there, oldest first if the broker keeps an order, and does what it says.
    /// Dead letters that come meanwhile may be shown or not. `judge` must not use the queue.
    ///
    /// # Errors
    /// [`QueueError`] if the broker fails; dead letters whose fate was decided may be there still.
    async fn review(&self, judge: &mut Judge<'_>) -> Result<(), QueueError>;

    /// Counts the messages. Brokers may answer approximately.
    ///
    /// # Errors
    /// [`QueueError`] if the broker fails.
    async fn depth(&self) -> Result<Depth, QueueError>;
}

/// A message to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The same at every delivery; see [`Job::is_id`].
    pub id: String,
    /// The [`Job`] as UTF-8. Some brokers refuse other bytes.
    pub body: Vec<u8>,
}

/// The answer of a broker that took a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on the queue.
    Stored,
    /// The broker dropped it: it stored a message with this id not long ago.
    Duplicate,
}

/// A message that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The message's id, or the broker's own if another program sent the message without one. The same at every
    /// delivery.
    pub id: String,
    /// The broker's own name of the message: the same at every delivery, and unique even if two messages have one id.
    pub key: String,
    /// The [`Job`], not validated yet.
    pub body: Vec<u8>,
    /// Identifies this delivery.
    pub receipt: Receipt,
    /// Deliveries so far, including this one: 1 at the first. A copy counts on from what [`JobQueue::renew`] was given.
    pub received: u32,
    /// The time when the message was sent, by the broker's clock, if known.
    pub sent: Option<SystemTime>,
    /// The time at which the message began to fail, in whole seconds, if a worker noted it with [`JobQueue::renew`].
    pub failing_since: Option<SystemTime>,
}

impl Delivery {
    /// Reads [`failing_since`](Self::failing_since) from a message, in seconds since 1970. Any sender can write it, so
    /// a text that is not a number and a time after now are ignored.
    pub fn parse_failing_since(seconds: &str) -> Option<SystemTime> {
        let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds.parse().ok()?))?;
        (since <= SystemTime::now()).then_some(since)
    }
}

/// Identifies one delivery of one message to the queue that made it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receipt(pub String);

/// The number of messages in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Messages that wait for a receiver.
    pub waiting: u64,
    /// Messages under a lease.
    pub leased: u64,
    /// Dead letters.
    pub dead: u64,
}
