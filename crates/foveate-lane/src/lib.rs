#![doc = include_str!("../README.md")]

mod error;
mod lane;
mod memory;
mod normalize;
mod sizes;

pub use error::LaneError;
pub use lane::{Landed, Lane};
pub use memory::batch_memory;
pub use normalize::Normalize;
