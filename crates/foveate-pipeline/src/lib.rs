#![doc = include_str!("../README.md")]

mod batch;
mod cancel;
mod changed_inputs;
mod config;
mod decode_worker;
mod engine;
mod error;
mod flow;
mod forward;
pub mod lane;
mod lookers;
mod queue;
mod recall;
mod report;
mod stages;
#[cfg(feature = "synthetic")]
pub mod synthetic;
mod update;

pub use cancel::Cancel;
pub use changed_inputs::check_storage;
pub use config::{Config, FailurePolicy};
pub use engine::Pipeline;
pub use error::RunError;
pub use foveate_sink::ContentId;
pub use lookers::stamp_of;
pub use queue::{Closed, Popped, Queue, QueueStats};
pub use recall::{KnownVector, Recall, Recalled};
pub use report::{RunReport, StageReport};
pub use stages::Progress;
pub use update::{Changes, EarlierRows, InputChange, KnownInputs, Update, UpdateSource};
