#![doc = include_str!("../README.md")]

mod outcome;
mod probe;
mod request;
mod task;

pub use outcome::{Failure, Outcome, Output};
pub use probe::Probe;
pub use request::{Done, Image, Rejected, Request};
pub use task::{Batching, Picture, Task, TaskError};
