//! Packs images into shards: containers of a chosen size that keep the images' order, ids and columns.
//!
//! The output is one as `embed` makes it, whose parts are shards: a job continues after its last complete one, and all
//! get their names when the last is complete. The bytes depend on the inputs and the settings alone.

mod drift;
mod options;
mod packer;
mod shards;
mod shrink;
mod work;

pub use drift::Drift;
pub use options::{PackError, PackOptions};
pub use packer::{Begun, Packer};
pub use shrink::Resize;
#[cfg(feature = "search")]
pub(crate) use shrink::{Fault, PhotoLook, Shrink};
