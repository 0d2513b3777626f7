#![doc = include_str!("../README.md")]

mod address;
mod ahead;
mod aws;
mod blob;
mod bucket;
mod connect;
mod control;
mod core;
mod errors;
mod keys;
mod list;
pub mod outputs;
mod prefix;
mod read;
mod retry;
mod store;

use std::sync::Arc;

use foveate_core::RegistryError;
use foveate_source::SourceError;
use foveate_source::store::{Store, StoreBackend, StoreOptions, StoreRegistry};

use crate::address::SCHEMES;
use crate::core::Core;
use crate::store::ObjectStores;

/// Opens the stores of all known schemes. Makes no request yet.
///
/// # Errors
/// [`SourceError`] if a setting is invalid, or the system has no certificates.
pub fn open(options: &StoreOptions) -> Result<Arc<dyn Store>, SourceError> {
    Ok(Arc::new(ObjectStores::new(Core::new(options)?)))
}

/// Adds this backend under the name `object-store`.
///
/// # Errors
/// If the name is taken.
pub fn register(registry: &mut StoreRegistry) -> Result<(), RegistryError> {
    registry.register(StoreBackend::new(
        "object-store",
        "S3, Google Cloud Storage, Azure Blob Storage (s3://, gs://, az://, abfs://)",
        &SCHEMES,
        open,
    ))
}
