#![doc = include_str!("../README.md")]

mod batch;
mod cancel;
mod config;
mod engine;
mod error;
mod flow;
mod forward;
mod inputs;
mod queue;
mod report;
mod stages;
#[cfg(feature = "synthetic")]
pub mod synthetic;
mod worker;

pub use cancel::Cancel;
pub use config::{Config, FailurePolicy};
pub use engine::Pipeline;
pub use error::RunError;
pub use queue::{Closed, Popped, Queue, QueueStats};
pub use report::{RunReport, StageReport};
pub use stages::Progress;
