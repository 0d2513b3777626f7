#![doc = include_str!("../README.md")]

mod address;
mod connect;
mod fetch;

use std::sync::Arc;

use foveate_core::RegistryError;
use foveate_source::{FetchBackend, FetchOpener, FetchOptions, FetchRegistry, SourceError};
use object_store::aws::AmazonS3Builder;

use crate::fetch::{ObjectFetch, Stores};

/// Prepares readers of the objects that the options allow. They share connections and one thread. Makes no request yet.
///
/// # Errors
/// [`SourceError`] if nothing is allowed, an address or a setting is invalid, or the system has no certificates.
pub fn open(options: &FetchOptions) -> Result<FetchOpener, SourceError> {
    let stores = Arc::new(Stores::new(&AmazonS3Builder::from_env(), options)?);
    Ok(Arc::new(move || Ok(Box::new(ObjectFetch::new(stores.clone())))))
}

/// Adds this backend under the name `object-store`.
///
/// # Errors
/// If the name is taken.
pub fn register(registry: &mut FetchRegistry) -> Result<(), RegistryError> {
    registry.register(FetchBackend::new(
        "object-store",
        "single objects from S3 and stores that speak its protocol (s3://bucket/key)",
        &["s3"],
        open,
    ))
}
