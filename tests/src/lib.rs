//! Shared parts of the tests across crates: test data, goldens, tolerances, and trials that say why they did not run.

pub mod backends;
pub mod conformance;
pub mod data;
pub mod embed;
pub mod goldens;
pub mod numerics;
pub mod trial;
