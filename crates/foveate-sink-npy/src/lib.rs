#![doc = include_str!("../README.md")]

mod header;
mod reader;
mod sink;

pub use sink::NpyFormat;

use foveate_core::RegistryError;
use foveate_sink::parts::open;
use foveate_sink::{SinkBackend, SinkRegistry};

/// Adds this sink to a registry, as `npy`.
pub fn register(registry: &mut SinkRegistry) -> Result<(), RegistryError> {
    let backend = SinkBackend::new("npy", "NumPy arrays, ids beside them", "npy", |options| {
        options.settings(&[])?;
        Ok(open(options, NpyFormat))
    });
    registry.register(backend.with_prefixes().with_reader(NpyFormat))
}
