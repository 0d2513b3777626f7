#![doc = include_str!("../README.md")]

pub mod card;
mod chrome;
mod histogram;
pub mod machine;
pub mod process;
mod stage;
mod thread;
mod trace;
mod track;

pub use histogram::Histogram;
pub use stage::{Span, StageProfiler, StageTotals};
pub use trace::{Trace, TraceSpan};
