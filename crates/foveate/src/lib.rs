#![doc = include_str!("../README.md")]

// The command line names the library as other programs do.
#[cfg(feature = "cli")]
extern crate self as foveate;

pub mod backends;
#[cfg(feature = "cache")]
pub mod cache;
#[cfg(feature = "cli")]
pub mod cli;
pub mod collect;
pub mod embed;
mod embedder;
pub mod models;
#[cfg(feature = "cli")]
pub mod pack;
#[cfg(feature = "search")]
pub mod pictures;
mod recipe;
#[cfg(feature = "cli")]
pub mod rig;
mod shard;
#[cfg(feature = "worker")]
pub mod task;
#[cfg(feature = "cli")]
pub mod telemetry;
#[cfg(feature = "text")]
pub mod texts;
#[cfg(feature = "cli")]
mod values;
pub mod verify;

pub use foveate_core as core;
pub use foveate_decode as decode;
pub use foveate_encode as encode;
#[cfg(feature = "cli")]
pub use foveate_lab as lab;
pub use foveate_model as model;
#[cfg(feature = "worker")]
pub use foveate_net as net;
pub use foveate_pipeline as pipeline;
#[cfg(feature = "cli")]
pub use foveate_plan as plan;
pub use foveate_preprocess as preprocess;
pub use foveate_profile as profile;
#[cfg(feature = "worker")]
pub use foveate_queue as queue;
#[cfg(feature = "cli")]
pub use foveate_report as report;
pub use foveate_resize as resize;
#[cfg(feature = "search")]
pub use foveate_search as search;
#[cfg(feature = "cli")]
pub use foveate_serve as serve;
pub use foveate_sink as sink;
pub use foveate_source as source;
#[cfg(feature = "worker")]
pub use foveate_worker as worker;

pub use embedder::Embedder;
pub use foveate_preprocess::DecodeScale;
pub use recipe::{Recipe, RecipeError};
pub use shard::{Shard, ShardError};

/// Version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
