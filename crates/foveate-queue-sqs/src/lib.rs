#![doc = include_str!("../README.md")]

mod client;
mod message;
mod options;
mod queue;
mod setup;

use foveate_core::RegistryError;
use foveate_queue::{QueueBackend, QueueRegistry};

pub use queue::SqsQueue;

/// Adds this backend to a registry.
///
/// # Errors
/// If the name is taken.
pub fn register(registry: &mut QueueRegistry) -> Result<(), RegistryError> {
    registry.register(QueueBackend::new("sqs", "Amazon SQS, or what speaks its protocol", |options| {
        Box::pin(async { Ok(Box::new(SqsQueue::open(options).await?) as _) })
    }))
}
