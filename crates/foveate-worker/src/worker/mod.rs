//! The queue worker around an engine.
//!
//! A message passes these parts in this order, and no part calls an earlier one:
//!
//! ```text
//! receiver → intake → (quarantine →) dispatcher → engine → outcome handler → segment writer → caller → settler
//! ```
//!
//! The worker holds a message from its receipt to its settlement. Meanwhile its queue's lease keeper keeps the lease
//! alive. Every path ends at the settler or at the end of the lease.

mod backlog;
mod backoff;
mod callback;
mod circuit_breaker;
mod delay_queue;
mod dispatcher;
mod health;
mod in_flight_limit;
mod intake;
mod lease_keeper;
mod leases;
mod lifecycle;
mod message_parts;
mod options;
mod outcome_handler;
mod parts;
mod quarantine;
mod receiver;
mod refusals;
mod segments;
mod settlement;
mod settler;
mod state;
mod store_events;
mod ticket;
mod totals;

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::watchdog::ThreadWatch;
use crate::{Engine, EngineError, Probe, engine, lock};
use backlog::Backlog;
use callback::Caller;
use lease_keeper::LeaseKeeper;
use parts::WorkerParts;
use receiver::{LONG_POLL, Receiver};
use segments::SegmentWriter;
use settler::Settler;

pub use backoff::Backoff;
pub use callback::{Callbacks, callback_id};
pub use in_flight_limit::InFlightLimit;
pub use options::WorkerOptions;
pub use segments::{SegmentOpener, Segments};
pub use totals::Totals;

/// Threads that settle messages.
const SETTLERS: usize = 4;

/// Works on the messages of queues until it is stopped.
pub struct Worker {
    parts: WorkerParts,
    receivers: Threads,
    others: Threads,
}

type Threads = Mutex<Vec<JoinHandle<()>>>;

impl Worker {
    /// Starts to work on messages for the tasks of `engine`, which should have no other user.
    ///
    /// # Errors
    /// [`EngineError`] without a queue, or when a thread cannot be started.
    pub fn start(engine: Engine, options: WorkerOptions) -> Result<Self, EngineError> {
        if options.queues.is_empty() {
            return Err(EngineError::Options("a worker without a queue".to_owned()));
        }
        let parts = WorkerParts::new(engine, options);
        let worker = Self { parts, receivers: Mutex::default(), others: Mutex::default() };
        // If a thread cannot be started, dropping the worker stops the others.
        worker.start_threads()?;
        Ok(worker)
    }

    /// The number of messages that are held.
    pub fn held(&self) -> usize {
        self.parts.state.leases.held()
    }

    /// The messages so far, by their outcomes.
    pub fn totals(&self) -> Totals {
        lock(&self.parts.state.totals).clone()
    }

    /// The messages that the worker gave back because of its settings, and that may be in their queues still.
    pub fn refused(&self) -> usize {
        self.parts.state.health.refusals.outstanding()
    }

    /// The reason why the worker's settings refuse every message that it has received, if they do.
    pub fn refusal(&self) -> Option<String> {
        self.parts.state.health.refusals.check().err()
    }

    /// Receives no more messages, and waits at most `deadline` for those that are held. Then gives the rest back to
    /// their queues, and returns their number.
    pub fn stop(&self, deadline: Duration) -> usize {
        let until = Instant::now() + deadline;
        self.parts.state.lifecycle.stop();
        // Messages on their way to a receiver must be held before they can be given back.
        join(&self.receivers, until.max(Instant::now() + LONG_POLL));
        while self.held() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        let left = self.parts.end();
        // Lease keepers would sleep for up to a second.
        lock(&self.others).iter().for_each(|thread| thread.thread().unpark());
        join(&self.others, until);
        left
    }

    fn start_threads(&self) -> Result<(), EngineError> {
        let WorkerParts { receivers, keepers, quarantine, sink, caller, settler, backlog, .. } = &self.parts;
        for i in 0..SETTLERS {
            self.start_thread(&self.others, format!("settle {i}"), settler, Settler::run)?;
        }
        self.start_thread(&self.others, "callback retries".to_owned(), caller, |caller, _| caller.run_retries())?;
        // At least one, to retry the callbacks that the engine's threads post.
        for i in 0..caller.callbacks.threads.max(1) {
            self.start_thread(&self.others, format!("callback {i}"), caller, Caller::run)?;
        }
        if let Some(sink) = sink {
            self.start_thread(&self.others, "sink".to_owned(), sink, SegmentWriter::run)?;
        }
        self.start_thread(&self.others, "backlog".to_owned(), backlog, Backlog::run)?;
        self.start_thread(&self.others, "quarantine".to_owned(), quarantine, |quarantine, _| quarantine.run())?;
        // A thread for each queue, so that a broker that does not answer does not delay the others.
        for (i, keeper) in keepers.iter().enumerate() {
            self.start_thread(&self.others, format!("leases {i}"), keeper, LeaseKeeper::run)?;
        }
        for (i, receiver) in receivers.iter().enumerate() {
            self.start_thread(&self.receivers, format!("receive {i}"), receiver, Receiver::run)?;
        }
        Ok(())
    }

    /// Starts a thread that runs a part, watched by the engine's watchdog.
    fn start_thread<P: Send + Sync + 'static>(
        &self,
        threads: &Threads,
        name: String,
        part: &Arc<P>,
        run: fn(&P, &ThreadWatch),
    ) -> Result<(), EngineError> {
        let part = Arc::clone(part);
        let watch = self.parts.engine.watch(&name);
        let thread = std::thread::Builder::new().name(name).spawn(move || run(&part, &watch));
        lock(threads).push(thread.map_err(EngineError::Thread)?);
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

fn join(threads: &Threads, until: Instant) {
    engine::join(std::mem::take(&mut *lock(threads)), until);
}

impl Probe for Worker {
    fn live(&self) -> Result<(), String> {
        self.parts.engine.live()?;
        self.parts.state.health.live()
    }

    fn ready(&self) -> Result<(), String> {
        self.live()?;
        if self.parts.state.lifecycle.is_stopping() {
            return Err("stopping".to_owned());
        }
        self.parts.state.health.ready()
    }

    fn metrics(&self) -> String {
        let leases = &self.parts.state.leases;
        self.parts.state.health.measure(&self.parts.state.metrics);
        self.parts.state.metrics.worker(leases.held(), leases.limiter().total());
        self.parts.engine.metrics()
    }
}
