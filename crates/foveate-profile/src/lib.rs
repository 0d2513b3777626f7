#![doc = include_str!("../README.md")]

mod chrome;
mod histogram;
mod lane;
pub mod process;
mod stage;
mod thread;
mod trace;

pub use histogram::Histogram;
pub use stage::{Span, StageProfiler, StageTotals};
pub use trace::Trace;
