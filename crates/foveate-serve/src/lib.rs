#![doc = include_str!("../README.md")]

mod answer;
mod api;
mod embeddings;
mod input;
mod memory;
mod metrics;
mod openapi;
mod problem;
mod routes;
mod server;

pub use api::{Api, CallbackCheck};
pub use server::{Options, ServeError, Server};
