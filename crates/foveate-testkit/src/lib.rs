#![doc = include_str!("../README.md")]

mod find;
mod resource;
mod trial;

pub use find::{data, find_data, program, python};
pub use libtest_mimic::Trial;
pub use resource::{Missing, Resource};
pub use trial::{Verdict, ignore, run, run_in_turn, trial};
