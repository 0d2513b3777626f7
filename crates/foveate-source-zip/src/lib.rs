#![doc = include_str!("../README.md")]

mod blob_reader;
mod directory;
mod entry;
mod members;

use std::sync::Arc;

use foveate_core::RegistryError;
use foveate_source::FetchError;
use foveate_source::blob::Blob;
use foveate_source::container::{ContainerBackend, ContainerOptions, ContainerRegistry};

use self::members::ZipMembers;

/// Adds this format to a registry, as `zip`.
pub fn register(registry: &mut ContainerRegistry) -> Result<(), RegistryError> {
    registry.register(ContainerBackend::new("zip", "zip archives, stored or deflated", &["zip"], |blob, options| {
        Ok(Box::new(open(blob, options)?))
    }))
}

fn open(blob: Arc<dyn Blob>, options: &ContainerOptions) -> Result<ZipMembers, FetchError> {
    let entries = directory::read(blob.as_ref(), &options.names)?;
    Ok(ZipMembers::new(blob, entries, options))
}
