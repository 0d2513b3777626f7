#![doc = include_str!("../README.md")]

mod histogram;
mod stage;

pub use histogram::Histogram;
pub use stage::{Span, StageProfiler, StageTotals};
