#![doc = include_str!("../README.md")]

pub mod backends;
pub mod collect;
pub mod embed;
pub mod models;
mod recipe;
pub mod rig;
mod scale;
mod shard;
pub mod verify;

pub use foveate_core as core;
pub use foveate_decode as decode;
pub use foveate_dinov2 as dinov2;
pub use foveate_encode as encode;
pub use foveate_lab as lab;
pub use foveate_pipeline as pipeline;
pub use foveate_plan as plan;
pub use foveate_preprocess as preprocess;
pub use foveate_profile as profile;
pub use foveate_report as report;
pub use foveate_resize as resize;
pub use foveate_sink as sink;
pub use foveate_source as source;

pub use recipe::Recipe;
pub use scale::DecodeScale;
pub use shard::{Shard, ShardError};

/// Version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
