#![doc = include_str!("../README.md")]

mod batch;
mod config;
mod engine;
mod error;
mod queue;
mod report;
mod stages;
#[cfg(feature = "synthetic")]
pub mod synthetic;

pub use config::{Config, FailurePolicy, Normalize, OrientationPolicy};
pub use engine::{Cancel, Pipeline};
pub use error::RunError;
pub use queue::QueueStats;
pub use report::{RunReport, StageReport};
pub use stages::{Opener, Progress};
