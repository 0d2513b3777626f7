#![doc = include_str!("../README.md")]

mod answer;
mod api;
mod asked;
mod body;
mod cors;
mod embeddings;
mod entry;
mod error;
mod form;
mod image_text;
mod index;
mod input;
mod limits;
mod memory;
mod metrics;
mod openapi;
mod problem;
mod process;
mod request_log;
mod routes;
mod server;
mod serving;
mod settings;
mod similar;

pub use api::{Api, Index, IndexFilter, IndexSource, ReadIndex};
pub use cors::Origin;
pub use error::ServeError;
pub use server::{Server, ServerOptions};
