#![doc = include_str!("../README.md")]

mod find;
mod ignored;
mod length;
mod resource;
mod trial;

pub use find::{data, find_data, program, python, workspace};
pub use ignored::ignore;
pub use length::by_length;
pub use libtest_mimic::Trial;
pub use resource::{Missing, Resource};
pub use trial::{Verdict, run, run_in_turn, trial};
