//! Simulation of one pipeline, event by event.

mod clock;
mod outcome;
mod pipeline;
mod service;

pub use outcome::{QueueUse, SimOutcome, Span, ThreadsUse};
pub use pipeline::{Limits, SimForward, SimStage, Simulation};
pub use service::Service;
pub(crate) use service::Uniform;
