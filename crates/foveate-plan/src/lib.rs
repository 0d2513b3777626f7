#![doc = include_str!("../README.md")]

mod answers;
mod error;
mod fit;
mod measured;
mod queueing;
mod shared;
mod step;
mod walls;

pub use answers::{Demand, Interval, Job, JobCost, Rate, WhatIf};
pub use error::PlanError;
pub use fit::{StepFit, fit_step};
pub use measured::{Configuration, ForwardCost, Measured, Place, StageCost};
pub use queueing::{QueueDemand, QueueSizing};
pub use shared::{Bound, MeasuredRun, Prediction, StageLoad};
pub use step::{LinearStep, Step, StepTable};
pub use walls::{Model, SteadyState, Storage, Transform, Wall};
