//! Packs images into shards: containers of a chosen size that keep the images' order, ids and columns.
//!
//! A shard has its name only once it is complete. What it covers is in a journal by then, from which the same job
//! continues. The bytes depend on the inputs and the settings alone.

mod drift;
mod options;
mod packer;
mod record;
mod shards;
mod shrink;
mod work;

pub use drift::Drift;
pub use options::{PackError, PackOptions};
pub use packer::{Begun, Packer};
pub use record::{PackManifest, PackedShard};
pub use shards::StoredShards;
pub use shrink::Resize;
#[cfg(feature = "search")]
pub(crate) use shrink::{Fault, Shrink};
