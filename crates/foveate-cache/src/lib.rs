#![doc = include_str!("../README.md")]

mod cache;
mod entry;
mod error;
mod store;

pub use cache::Cache;
pub use error::CacheError;
pub use store::pause;
