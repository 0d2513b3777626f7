#![doc = include_str!("../README.md")]

mod archive;
mod buffers;
mod columns;
mod compression;
mod input;
mod links;
mod members;
mod name;
mod write;

use foveate_source::container::{ContainerBackend, ContainerRegistry};

use crate::buffers::Buffers;
use crate::members::TarMembers;

/// The backend's name.
pub const NAME: &str = "tar";

/// The last ones are of compressions that are not read, so that an archive says so rather than counting as no image.
const SUFFIXES: &[&str] =
    &["tar", "tar.gz", "tgz", "tar.zst", "tzst", "tar.xz", "txz", "tar.bz2", "tbz", "tbz2", "tar.lz4"];

/// Adds the backend to `registry`.
///
/// # Errors
/// If the name is taken.
pub fn register(registry: &mut ContainerRegistry) -> Result<(), foveate_core::RegistryError> {
    registry.register(format())
}

/// The format as a value, for a program without a registry.
pub fn format() -> ContainerBackend {
    let about = "tar archives and WebDataset shards, also with gzip or Zstandard";
    // Of all archives, so that each next one finds them.
    let buffers = Buffers::default();
    let format = ContainerBackend::new(NAME, about, SUFFIXES, move |blob, options| {
        Ok(Box::new(TarMembers::open(blob, options, buffers.clone())?))
    });
    format.with_columns().with_writer(write::create)
}
