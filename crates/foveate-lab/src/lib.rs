#![doc = include_str!("../README.md")]

pub mod bench;
mod calibrate;
mod cell;
mod clock;
mod conditions;
pub mod diagnose;
mod error;
mod order;
mod photos;
pub mod plan_check;
pub mod profile;
mod rig;
mod run;
mod stand_in;
mod storage;
mod store;
mod table;
mod tar;
pub mod tune;
mod web;
mod width;
mod wrap;

pub use calibrate::{Calibration, Costs, Prediction};
pub use cell::Cell;
pub use conditions::{Conditions, Observer};
pub use error::LabError;
pub use foveate_plan::stats;
pub use foveate_schema::{self as schema, Column, Schema};
pub use photos::{Photo, PhotoSet};
pub use rig::{Candidate, Context, Rig, Setting, StoreOpener};
pub use run::{Lab, Output, Run, Watch};
pub use stand_in::{StandIn, StandInRig};
pub use table::Table;
pub use width::{WIDTH, fit};
pub use wrap::{CheckedSink, LentEncoder};
