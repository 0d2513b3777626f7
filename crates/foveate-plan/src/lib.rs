//! The analytic model of an embedding run.
mod error;
mod step;
mod walls;
pub use error::PlanError;
pub use step::{LinearStep, Step, StepTable};
pub use walls::{Model, SteadyState, Storage, Transform, Wall};
