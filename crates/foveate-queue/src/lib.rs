#![doc = include_str!("../README.md")]

mod backend;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod job;
mod memory;
mod text;

use std::time::{Duration, SystemTime};

pub use backend::{QueueBackend, QueueOptions, QueueRegistry};
pub use error::QueueError;
pub use job::{Callback, ImageRef, Job, JobError};
pub use memory::MemoryQueue;
pub use text::one_line;

/// A broker's queue of jobs. Delivery is at least once: a message is leased to whoever receives it, and comes back when
/// the lease ends without an acknowledgement. Every method may be called from several threads at once, and blocks: within
/// an async runtime, call it where blocking is allowed.
///
/// Methods on several messages answer for each, in the order given, and use as few requests as the broker allows,
/// however many they are given.
pub trait JobQueue: Send + Sync {
    /// What people and metrics call it. Without credentials.
    fn name(&self) -> &str;

    /// How long a message belongs to who received it, unless it is extended.
    fn lease(&self) -> Duration;

    /// Deliveries after which a message is to be given up; at least 1. The broker itself gives up none: only a worker
    /// knows stage and reason.
    fn max_receive(&self) -> u32;

    /// Adds messages. Done when the broker has them durably. Of two with one id, a broker that knows about ids drops the
    /// second if it comes soon.
    fn send(&self, messages: &[Message]) -> Vec<Result<(), QueueError>>;

    /// Up to `max` messages; waits no longer than about `wait` for the first, and returns nothing if none came.
    ///
    /// # Errors
    /// When the broker cannot be asked. Connections that were lost are made anew by the next call.
    fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError>;

    /// Removes messages for good. [`QueueError::LeaseLost`] where the broker can tell that the lease had ended.
    fn acknowledge(&self, receipts: &[Receipt]) -> Vec<Result<(), QueueError>>;

    /// Starts leases anew: another [`Self::lease`] from now.
    fn extend(&self, receipts: &[Receipt]) -> Vec<Result<(), QueueError>>;

    /// Gives messages back, to be delivered again after `delay` (at once when zero).
    fn release(&self, receipts: &[Receipt], delay: Duration) -> Vec<Result<(), QueueError>>;

    /// Moves a message to the queue's dead letters, with its id and why. It is there durably before it is removed here.
    /// What does not fit beside the body is left out; a body that leaves no room for anything loses its end.
    ///
    /// # Errors
    /// When that could not be done; the message then comes back when its lease ends.
    fn dead_letter(&self, delivery: &Delivery, why: &DeadLetter) -> Result<(), QueueError>;

    /// How many messages there are; brokers may answer approximately.
    ///
    /// # Errors
    /// When the broker cannot be asked.
    fn depth(&self) -> Result<Depth, QueueError>;
}

/// What is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The same whenever this message is delivered; see [`Job::is_id`].
    pub id: String,
    /// The job: see [`Job`]. Text in UTF-8: some brokers carry nothing else, and refuse it.
    pub body: Vec<u8>,
}

/// What is received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The id it was sent with; the broker's own where it was sent without (by another program), which is the same at
    /// every delivery too.
    pub id: String,
    /// The broker's own name of the message: the same at every delivery of it, and different for every message that was
    /// sent, even where two have one id.
    pub key: String,
    /// The job: see [`Job`]. Whatever was sent: nothing has looked into it yet.
    pub body: Vec<u8>,
    /// Names this delivery.
    pub receipt: Receipt,
    /// How often it was delivered, this time included: 1 the first time.
    pub received: u32,
    /// When it was sent, by the broker's clock, where it tells.
    pub sent: Option<SystemTime>,
}

/// Names one delivery of one message, for the queue that made it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receipt(pub String);

/// Why a message is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The stage that failed.
    pub stage: String,
    /// The reason, one line.
    pub reason: String,
}

/// How many messages a queue has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Nobody has received them, or they were given back.
    pub waiting: u64,
    /// Under a lease.
    pub leased: u64,
    /// Given up.
    pub dead: u64,
}
