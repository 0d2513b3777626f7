use std::sync::Arc;
use std::time::Duration;

use foveate_queue::JobQueue;

use super::backoff::Backoff;
use super::callback::Callbacks;
use super::death_record::DeathRecord;
use super::in_flight_limit::InFlightLimit;
use super::segments::Segments;
use crate::{Setting, Traces};

/// A worker's queues and settings.
#[derive(Clone)]
pub struct WorkerOptions {
    /// The queues that messages come from, at least one.
    pub queues: Vec<Arc<dyn JobQueue>>,
    /// Limits the messages that are held.
    pub in_flight_limit: InFlightLimit,
    /// True if the worker extends the leases of the messages that it holds. Otherwise a lease that ends takes its
    /// message away.
    pub heartbeat: bool,
    /// The delay before a failed message is delivered again.
    pub backoff: Backoff,
    /// The time for which a message may fail before it goes to the dead letters; 24 times that while a circuit breaker
    /// says that the fault is not its own. It has at least as many tries as its queue's `max_receive` says. Default: an
    /// hour.
    pub retry_for: Duration,
    /// The delay before a message that this worker's settings refuse is delivered again, to any worker.
    pub refused: Backoff,
    /// The change that allows a message which a setting refuses, for logs and `/readyz`; a library cannot know.
    pub remedy: fn(Setting) -> Option<&'static str>,
    /// The delay before a failed callback is posted again.
    pub callback_backoff: Backoff,
    /// The delay before another request to a broker or sink that failed.
    pub reconnect: Backoff,
    /// Settings of the posts of results.
    pub callbacks: Callbacks,
    /// The sink of vectors, if they are stored.
    pub sink: Option<Segments>,
    /// True if notifications of object stores are jobs: the images are the objects that were written, and the engine
    /// must be able to read them. Notifications of other events are acknowledged.
    pub store_events: bool,
    /// Remembers which messages were in a decoder when a worker died. Such a message is quarantined after two deaths,
    /// and goes to the dead letters after three. Without a record, the number of deliveries decides. Default: none.
    pub deaths: Option<Arc<DeathRecord>>,
    /// Connects the worker's spans to its callers' traces.
    pub traces: Traces,
}

impl WorkerOptions {
    /// The usual options: an in-flight limit from the measured rate, heartbeats, no sink.
    pub fn new(queues: Vec<Arc<dyn JobQueue>>, callbacks: Callbacks) -> Self {
        Self {
            queues,
            in_flight_limit: InFlightLimit::Measured,
            heartbeat: true,
            backoff: Backoff::default(),
            retry_for: Duration::from_secs(3600),
            refused: Backoff { base: Duration::from_secs(20), max: Duration::from_secs(300) },
            remedy: |_| None,
            callback_backoff: Backoff { base: Duration::from_millis(500), max: Duration::from_secs(15) },
            reconnect: Backoff { base: Duration::from_millis(100), max: Duration::from_secs(5) },
            callbacks,
            sink: None,
            store_events: false,
            deaths: None,
            traces: Traces::default(),
        }
    }
}
