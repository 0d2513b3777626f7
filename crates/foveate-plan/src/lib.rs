#![doc = include_str!("../README.md")]

mod answers;
mod error;
mod fit;
mod measured;
mod queueing;
mod shared;
pub mod stats;
mod step;
mod walls;

pub use answers::{Demand, Interval, JobCost, Rate, Saturation, WhatIf, Workload};
pub use error::PlanError;
pub use fit::{StepFit, StoreRequests, fit_step, fit_store};
pub use measured::{Configuration, ForwardCost, Measured, Place, StageCost};
pub use queueing::{QueueDemand, QueueSizing};
pub use shared::{Bottleneck, MeasuredRun, Prediction, StageLoad};
pub use step::{LinearStep, Step, StepTable};
pub use walls::{Bus, Model, SteadyState, Storage, Transform, Wall};
