#![doc = include_str!("../README.md")]

mod downloads;
mod embed;
mod engine;
mod engine_error;
mod engine_state;
mod engine_threads;
mod erased;
mod fair_queue;
mod heap;
mod io_runtime;
mod memory_budget;
mod metrics;
mod outcome;
mod probe;
mod progress;
mod request;
mod setting;
mod sites;
mod stage;
mod task;
mod traces;
mod worker;

use foveate_core::lock;

pub use embed::{Embed, EmbedInput, EmbedLane, EmbedTexts, TextTokens};
pub use engine::{Engine, EngineBuilder};
pub use engine_error::EngineError;
pub use heap::return_large_allocations;
pub use io_runtime::IoRuntime;
pub use metrics::TIME_BUCKETS;
pub use outcome::{Embedding, Encoding, Failure, Outcome, Output};
pub use probe::Probe;
pub use request::{Done, Image, Rejected, Request};
pub use setting::Setting;
pub use stage::Stage;
pub use task::{Batching, File, InTurn, Received, Task, TaskError, TaskLane};
pub use traces::Traces;
pub use worker::{
    Backoff, Callbacks, DeathRecord, InFlightLimit, SegmentOpener, Segments, Totals, Worker, WorkerOptions, callback_id,
};
