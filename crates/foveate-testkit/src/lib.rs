#![doc = include_str!("../README.md")]
// Tests report by panicking, and what was compared is worth seeing.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[cfg(feature = "brokers")]
pub mod brokers;
#[cfg(feature = "device")]
pub mod device;
#[cfg(feature = "encoders")]
pub mod encoders;
mod find;
#[cfg(feature = "hub")]
pub mod hub;
mod ignored;
mod length;
#[cfg(feature = "pixels")]
pub mod pixels;
pub mod proxy;
mod resource;
mod trial;

pub use find::{data, find_data, program, python, workspace};
pub use ignored::ignore;
pub use length::by_length;
pub use libtest_mimic::Trial;
pub use resource::{Missing, Resource};
pub use trial::{Verdict, run, run_in_turn, trial};
