//! Puts a worker's parts together.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use foveate_pipeline::Queue;

use super::backlog::Backlog;
use super::callback::{Caller, Delayed};
use super::delay_queue::DelayQueue;
use super::dispatcher::Dispatcher;
use super::health::WorkerHealth;
use super::in_flight_limit::Limiter;
use super::intake::Intake;
use super::lease_keeper::LeaseKeeper;
use super::leases::Leases;
use super::lifecycle::Lifecycle;
use super::options::WorkerOptions;
use super::outcome_handler::OutcomeHandler;
use super::quarantine::Quarantine;
use super::receiver::Receiver;
use super::segments::SegmentWriter;
use super::settler::Settler;
use super::state::WorkerState;
use crate::Engine;
use crate::site_queue::SiteQueue;

/// The parts that threads run, and that are stopped at the end.
pub(super) struct WorkerParts {
    pub(super) state: Arc<WorkerState>,
    pub(super) engine: Arc<Engine>,
    pub(super) receivers: Vec<Arc<Receiver>>,
    pub(super) keepers: Vec<Arc<LeaseKeeper>>,
    pub(super) quarantine: Arc<Quarantine>,
    pub(super) sink: Option<Arc<SegmentWriter>>,
    pub(super) caller: Arc<Caller>,
    pub(super) settler: Arc<Settler>,
    pub(super) backlog: Arc<Backlog>,
}

impl WorkerParts {
    /// From the settler, where every message ends, to the receivers.
    pub(super) fn new(engine: Engine, options: WorkerOptions) -> Self {
        let state = Arc::new(state(&engine, &options));
        let engine = Arc::new(engine);
        let settler = settler(&state, &options);
        let caller = caller(&state, &engine, &options, &settler);
        let sink = sink(&state, &engine, &options, &caller);
        let outcomes = Arc::new(OutcomeHandler {
            state: Arc::clone(&state),
            sink: sink.clone(),
            caller: Arc::clone(&caller),
            settler: Arc::clone(&settler),
        });
        let dispatcher = Arc::new(Dispatcher {
            state: Arc::clone(&state),
            engine: Arc::clone(&engine),
            outcomes: Arc::clone(&outcomes),
        });
        let quarantine = Arc::new(Quarantine::new(Arc::clone(&state), Arc::clone(&dispatcher)));
        let intake = Intake {
            state: Arc::clone(&state),
            traces: options.traces,
            store_events: options.store_events,
            outcomes,
            quarantine: Arc::clone(&quarantine),
            dispatcher,
        };
        let receivers = receivers(&state, &options, &Arc::new(intake));
        let keepers = keepers(&state, &options);
        let backlog = Arc::new(Backlog { state: Arc::clone(&state) });
        Self { state, engine, receivers, keepers, quarantine, sink, caller, settler, backlog }
    }

    /// Gives back the messages that are still held, and stops every part. Returns the number of those messages.
    pub(super) fn end(&self) -> usize {
        self.state.lifecycle.end();
        let left = self.keepers.iter().map(|keeper| keeper.give_back()).sum();
        self.engine.stop(Duration::ZERO);
        self.sink.iter().for_each(|sink| sink.close());
        self.caller.close();
        self.settler.close();
        left
    }
}

fn state(engine: &Engine, options: &WorkerOptions) -> WorkerState {
    let queues = options.queues.clone();
    let batch = engine.largest_batch();
    let leases = queues.iter().map(|queue| queue.lease()).collect();
    let limiter = Limiter::new(options.in_flight_limit, leases, batch, most(engine, options));
    WorkerState {
        runtime: engine.runtime().clone(),
        leases: Leases::new(limiter),
        health: WorkerHealth::new(queues.len(), batch, options.remedy),
        lifecycle: Lifecycle::default(),
        metrics: Arc::clone(engine.counters()),
        totals: Mutex::default(),
        idle: queues.iter().map(|_| AtomicBool::new(false)).collect(),
        queues,
    }
}

/// Most messages that can be held: those in the engine, and rows that wait for their segment.
fn most(engine: &Engine, options: &WorkerOptions) -> usize {
    engine.max_in_flight() + options.sink.as_ref().map_or(0, |segments| segments.max_rows)
}

fn settler(state: &Arc<WorkerState>, options: &WorkerOptions) -> Arc<Settler> {
    Arc::new(Settler {
        state: Arc::clone(state),
        measures_rate: options.sink.is_none(),
        backoff: options.backoff,
        retry_for: options.retry_for,
        refused: options.refused,
        reconnect: options.reconnect,
        due: DelayQueue::new(),
    })
}

fn caller(state: &Arc<WorkerState>, engine: &Engine, options: &WorkerOptions, settler: &Arc<Settler>) -> Arc<Caller> {
    let room = (most(engine, options) / 4).max(1);
    Arc::new(Caller {
        state: Arc::clone(state),
        callbacks: options.callbacks.clone(),
        backoff: options.callback_backoff,
        traces: options.traces,
        settler: Arc::clone(settler),
        calls: SiteQueue::new(options.callbacks.threads, room),
        due: DelayQueue::new(),
        delayed: Delayed::new(room),
    })
}

fn sink(
    state: &Arc<WorkerState>,
    engine: &Engine,
    options: &WorkerOptions,
    caller: &Arc<Caller>,
) -> Option<Arc<SegmentWriter>> {
    let segments = options.sink.clone()?;
    Some(Arc::new(SegmentWriter {
        state: Arc::clone(state),
        segments,
        rows: Queue::new("sink", most(engine, options), u64::MAX, None),
        heartbeat: options.heartbeat,
        waiting: AtomicUsize::new(0),
        retry: options.reconnect,
        caller: Arc::clone(caller),
    }))
}

fn receivers(state: &Arc<WorkerState>, options: &WorkerOptions, intake: &Arc<Intake>) -> Vec<Arc<Receiver>> {
    let mut receivers = Vec::new();
    for queue in 0..options.queues.len() {
        let state = Arc::clone(state);
        receivers.push(Arc::new(Receiver { state, queue, reconnect: options.reconnect, intake: Arc::clone(intake) }));
    }
    receivers
}

fn keepers(state: &Arc<WorkerState>, options: &WorkerOptions) -> Vec<Arc<LeaseKeeper>> {
    let keepers = (0..options.queues.len())
        .map(|queue| Arc::new(LeaseKeeper { state: Arc::clone(state), queue, heartbeat: options.heartbeat }));
    keepers.collect()
}
