//! Puts a worker's parts together.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};

use foveate_net::Turns;
use foveate_pipeline::Queue;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::callback::{Caller, Delayed};
use super::health::WorkerHealth;
use super::in_flight_limit::Limiter;
use super::intake::Intake;
use super::lease_keeper::LeaseKeeper;
use super::leases::Leases;
use super::options::WorkerOptions;
use super::outcome_handler::OutcomeHandler;
use super::quarantine::Quarantine;
use super::segments::SegmentWriter;
use super::settler::{Settlement, Settler};
use super::state::WorkerState;
use crate::Engine;
use crate::progress::ThreadProgress;

/// The parts that run by themselves.
pub(super) struct WorkerParts {
    pub(super) state: Arc<WorkerState>,
    pub(super) engine: Arc<Engine>,
    pub(super) intake: Arc<Intake>,
    pub(super) keepers: Vec<Arc<LeaseKeeper>>,
    pub(super) sink: Option<Arc<SegmentWriter>>,
    pub(super) settler: Arc<Settler>,
}

impl WorkerParts {
    /// Returns the parts, and the messages to settle of each queue.
    pub(super) fn new(engine: Engine, options: &WorkerOptions) -> (Self, Vec<UnboundedReceiver<Settlement>>) {
        let state = Arc::new(state(&engine, options));
        let engine = Arc::new(engine);
        let (due, settlements) = state.queues.iter().map(|_| unbounded_channel()).unzip();
        let settler = Arc::new(Settler {
            state: Arc::clone(&state),
            measures_rate: options.sink.is_none(),
            backoff: options.backoff,
            retry_for: options.retry_for,
            refused: options.refused,
            reconnect: options.reconnect,
            due,
        });
        let caller = caller(&state, &engine, options, &settler);
        let sink = sink(&state, &engine, options, &caller);
        let outcomes = Arc::new(OutcomeHandler {
            state: Arc::clone(&state),
            engine: Arc::clone(&engine),
            sink: sink.clone(),
            caller,
            settler: Arc::clone(&settler),
        });
        let intake = Arc::new(Intake {
            state: Arc::clone(&state),
            traces: options.traces,
            store_events: options.store_events,
            quarantine: Arc::new(Quarantine::new(Arc::clone(&outcomes))),
            outcomes,
            held_back: AtomicUsize::new(0),
        });
        let heartbeat = options.heartbeat;
        let queues = 0..state.queues.len();
        let keepers = queues.map(|queue| Arc::new(LeaseKeeper { state: Arc::clone(&state), queue, heartbeat }));
        let keepers = keepers.collect();
        (Self { state, engine, intake, keepers, sink, settler }, settlements)
    }
}

fn state(engine: &Engine, options: &WorkerOptions) -> WorkerState {
    let queues = options.queues.clone();
    let batch = engine.largest_batch();
    let leases = queues.iter().map(|queue| queue.lease()).collect();
    let limiter = Limiter::new(options.in_flight_limit, leases, batch, most(engine, options));
    WorkerState {
        leases: Leases::new(limiter),
        deaths: options.deaths.clone(),
        health: WorkerHealth::new(queues.len(), batch, options.remedy),
        stopping: CancellationToken::new(),
        ended: CancellationToken::new(),
        metrics: Arc::clone(engine.counters()),
        totals: Mutex::default(),
        idle: queues.iter().map(|_| AtomicBool::new(false)).collect(),
        runtime: engine.runtime().clone(),
        queues,
    }
}

/// Most messages that can be held: those in the engine, and rows that wait for their segment.
fn most(engine: &Engine, options: &WorkerOptions) -> usize {
    engine.max_in_flight() + options.sink.as_ref().map_or(0, |segments| segments.max_rows)
}

fn caller(state: &Arc<WorkerState>, engine: &Engine, options: &WorkerOptions, settler: &Arc<Settler>) -> Arc<Caller> {
    let room = (most(engine, options) / 4).max(1);
    Arc::new(Caller {
        state: Arc::clone(state),
        callbacks: options.callbacks.clone(),
        backoff: options.callback_backoff,
        traces: options.traces,
        settler: Arc::clone(settler),
        turns: Turns::new(options.callbacks.posts / 4),
        room,
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
    let room = most(engine, options) + crate::engine::MAX_STALLED;
    Some(Arc::new(SegmentWriter {
        state: Arc::clone(state),
        segments,
        rows: Queue::new("sink", room, u64::MAX, None),
        heartbeat: options.heartbeat,
        waiting: AtomicUsize::new(0),
        retry: options.reconnect,
        caller: Arc::clone(caller),
        progress: ThreadProgress::default(),
    }))
}
