//! What the tests across crates share: where the data is, the goldens, how far from them is still right, and trials
//! that say why they did not run.

pub mod conformance;
pub mod data;
pub mod embed;
pub mod goldens;
pub mod numerics;
pub mod trial;
