#![doc = include_str!("../README.md")]

mod bases;
mod basis;
mod bytes;
mod classify;
mod clusters;
mod codes;
mod digest;
mod error;
mod evaluate;
mod found;
mod groups;
mod multiply;
mod nearest;
mod order;
mod probe;
mod rows;
mod scan;
mod screen;
mod search;
mod side;
mod spread_out;
mod state;
mod top;
mod vectors;

pub use classify::{ClassScore, Classifier};
pub use clusters::{ClusterOptions, Clusters};
pub use digest::Duplicates;
pub use error::SearchError;
pub use evaluate::{Evaluation, Figure, difference};
pub use found::{Neighbors, Pair, Pairs, Stats};
pub use groups::{Linkage, groups};
pub use rows::{Collector, Components};
pub use search::{Search, SearchState};
pub use vectors::{Metric, Vectors};
