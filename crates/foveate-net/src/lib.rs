#![doc = include_str!("../README.md")]

mod address;
mod answer;
mod client;
mod deadline;
mod download;
mod error;
mod options;
mod resolve;
mod target;
#[cfg(test)]
mod tests;
mod turns;
pub mod webhook;

pub use answer::AnswerFacts;
pub use client::{Client, Reply};
pub use error::{NetError, OptionsError, Rule};
pub use options::{ClientOptions, RequestHeaders};
pub use target::{check, server, site};
