//! Outputs in object stores.

use foveate_core::RegistryError;
use foveate_sink::{PrefixBackend, PrefixRegistry};

use crate::address::SCHEMES;
use crate::prefix;

/// Adds this backend under the name `object-store`.
///
/// # Errors
/// If the name is taken.
pub fn register(registry: &mut PrefixRegistry) -> Result<(), RegistryError> {
    registry.register(PrefixBackend::new(
        "object-store",
        "S3, Google Cloud Storage, Azure Blob Storage (s3://, gs://, az://, abfs://)",
        &SCHEMES,
        prefix::open,
    ))
}
