#![doc = include_str!("../README.md")]

mod connect;
mod options;
mod queue;
mod setup;

use foveate_core::RegistryError;
use foveate_queue::{QueueBackend, QueueRegistry};

pub use queue::NatsQueue;

/// Adds this backend to a registry.
///
/// # Errors
/// If the name is taken.
pub fn register(registry: &mut QueueRegistry) -> Result<(), RegistryError> {
    registry.register(QueueBackend::new("nats", "NATS JetStream: a stream and a durable pull consumer", |options| {
        Box::pin(async { Ok(Box::new(NatsQueue::open(options).await?) as _) })
    }))
}
