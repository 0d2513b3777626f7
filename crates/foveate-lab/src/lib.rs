#![doc = include_str!("../README.md")]

mod calibrate;
mod clock;
mod error;
mod photos;
pub mod profile;
mod rig;
mod run;
pub mod schema;
pub mod stats;
mod table;
mod wrap;

pub use calibrate::{Calibration, Costs, Prediction};
pub use error::LabError;
pub use photos::{Photo, PhotoSet};
pub use rig::{Candidate, Context, Rig, Setting};
pub use run::{Lab, Output, Run, Watch};
pub use schema::{Column, Schema};
pub use table::{Cell, Table};
pub use wrap::{CheckedSink, LentEncoder};
