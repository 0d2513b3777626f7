//! The queue worker around an engine.
//!
//! A message passes these parts in this order, and no part calls an earlier one:
//!
//! ```text
//! receiver → intake → (quarantine →) outcome handler → engine → outcome handler → segment writer → caller → settler
//! ```
//!
//! Each receiver, callback and broker call is a task of one runtime. The worker holds a message from its receipt to
//! its settlement. Meanwhile its queue's lease keeper keeps the lease alive. Every path ends at the settler or at the
//! end of the lease.

mod backoff;
mod callback;
mod circuit_breaker;
mod death_record;
mod health;
mod in_flight_limit;
mod intake;
mod lease_keeper;
mod leases;
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
use std::thread::JoinHandle as ThreadHandle;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::engine::wait_until;
use crate::{Engine, EngineError, Probe, lock};
use parts::WorkerParts;
use receiver::{LONG_POLL, Receiver};
use state::WorkerState;

pub use backoff::Backoff;
pub use callback::{Callbacks, callback_id};
pub use death_record::DeathRecord;
pub use in_flight_limit::InFlightLimit;
pub use options::WorkerOptions;
pub use segments::{SegmentOpener, Segments};
pub use totals::Totals;

/// Longest wait at the end for messages to be given back.
const GIVING_BACK: Duration = Duration::from_secs(5);
/// The interval at which the brokers are asked for their backlogs, for autoscaling.
const BACKLOG_INTERVAL: Duration = Duration::from_secs(15);

/// Works on the messages of queues until it is stopped.
pub struct Worker {
    parts: WorkerParts,
    /// Tasks that end when the worker stops.
    receivers: Vec<JoinHandle<()>>,
    /// Tasks that end when the worker has ended.
    others: Vec<JoinHandle<()>>,
    /// The thread that writes segments, which blocks.
    sink: Mutex<Option<ThreadHandle<()>>>,
}

impl Worker {
    /// Starts to work on messages for the tasks of `engine`, which should have no other user.
    ///
    /// # Errors
    /// [`EngineError`] without a queue, or when a thread cannot be started.
    pub fn start(engine: Engine, options: WorkerOptions) -> Result<Self, EngineError> {
        if options.queues.is_empty() {
            return Err(EngineError::Options("a worker without a queue".to_owned()));
        }
        let (parts, settlements) = WorkerParts::new(engine, &options);
        let state = &parts.state;
        let mut others = Vec::new();
        for due in settlements {
            others.push(state.spawn(Arc::clone(&parts.settler).run(due)));
        }
        for keeper in &parts.keepers {
            others.push(state.spawn(Arc::clone(keeper).run()));
        }
        others.push(state.spawn(Arc::clone(&parts.intake.quarantine).run()));
        others.push(state.spawn(measure_backlogs(Arc::clone(state))));
        let sink = parts.sink.clone().map(|sink| {
            let thread = std::thread::Builder::new().name("sink".to_owned());
            thread.spawn(move || sink.run()).map_err(EngineError::Thread)
        });
        let mut worker = Self { sink: Mutex::new(sink.transpose()?), parts, receivers: Vec::new(), others };
        for queue in 0..options.queues.len() {
            let state = Arc::clone(&worker.parts.state);
            let intake = Arc::clone(&worker.parts.intake);
            let receiver = Receiver { state, queue, reconnect: options.reconnect, intake };
            worker.receivers.push(worker.parts.state.runtime.spawn(receiver.run()));
        }
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
        let state = &self.parts.state;
        state.stopping.cancel();
        // Messages on their way to a receiver must be held before they can be given back.
        wait_until(until.max(Instant::now() + LONG_POLL), || self.receivers.iter().all(JoinHandle::is_finished));
        wait_until(until, || self.held() == 0);
        state.ended.cancel();
        let left = self.give_back();
        self.parts.engine.stop(Duration::ZERO);
        self.parts.sink.iter().for_each(|sink| sink.close());
        if let Some(sink) = lock(&self.sink).take() {
            wait_until(until.max(Instant::now() + LONG_POLL), || sink.is_finished());
        }
        left
    }

    /// Gives back the messages that are still held. Returns their number.
    fn give_back(&self) -> usize {
        let state = &self.parts.state;
        let mut left = 0;
        let mut giving_back = Vec::new();
        for (queue, keeper) in self.parts.keepers.iter().enumerate() {
            let held = state.leases.take(queue);
            left += held.len();
            giving_back.push(state.runtime.spawn(Arc::clone(keeper).give_back(held)));
        }
        // Otherwise the broker delivers them again when their leases end.
        wait_until(Instant::now() + GIVING_BACK, || giving_back.iter().all(JoinHandle::is_finished));
        left
    }
}

async fn measure_backlogs(state: Arc<WorkerState>) {
    loop {
        for queue in &state.queues {
            // While a broker does not answer, the last figures stay, and `/readyz` says so.
            if let Ok(depth) = queue.depth().await {
                state.metrics.backlog(queue.name(), depth);
            }
        }
        tokio::time::sleep(BACKLOG_INTERVAL).await;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

impl Probe for Worker {
    fn live(&self) -> Result<(), String> {
        let WorkerParts { state, engine, sink, .. } = &self.parts;
        engine.live()?;
        sink.as_ref().map_or(Ok(()), |sink| sink.progress.check(engine.stall()))?;
        let is_running = state.is_stopping() || !self.receivers.iter().chain(&self.others).any(JoinHandle::is_finished);
        if !is_running {
            return Err("a part of the worker died; see the log".to_owned());
        }
        state.health.live()
    }

    fn ready(&self) -> Result<(), String> {
        if self.parts.state.is_stopping() {
            return Err("stopping".to_owned());
        }
        self.live()?;
        self.parts.state.health.ready()
    }

    fn metrics(&self) -> String {
        let leases = &self.parts.state.leases;
        self.parts.state.health.measure(&self.parts.state.metrics);
        self.parts.state.metrics.worker(leases.held(), leases.limiter().total());
        self.parts.engine.metrics()
    }
}
