#![doc = include_str!("../README.md")]

mod client;
mod error;

pub use client::{Client, Options, Reply};
pub use error::NetError;
