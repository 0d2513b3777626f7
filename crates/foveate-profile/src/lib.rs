#![doc = include_str!("../README.md")]

mod histogram;
pub mod process;
mod stage;

pub use histogram::Histogram;
pub use stage::{Span, StageProfiler, StageTotals};
