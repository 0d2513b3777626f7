//! Packs images into shards: containers of a chosen size that keep the images' order, ids and columns.
//!
//! A shard has its name only once it is complete. What it covers is in a journal by then, from which the same job
//! continues. The bytes depend on the inputs and the settings alone.

mod options;
mod packer;
mod record;
mod shards;
mod work;

pub use options::{PackError, PackOptions};
pub use packer::{Begun, Packer};
pub use record::{PackManifest, PackedShard};
