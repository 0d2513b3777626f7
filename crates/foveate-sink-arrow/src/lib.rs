#![doc = include_str!("../README.md")]

mod format;
pub mod table;

pub use format::ArrowFormat;

use foveate_core::RegistryError;
use foveate_sink::parts::open;
use foveate_sink::{SinkBackend, SinkRegistry};

/// Adds this sink to a registry, as `arrow`.
pub fn register(registry: &mut SinkRegistry) -> Result<(), RegistryError> {
    let backend = SinkBackend::new("arrow", "Arrow IPC files, for memory mapping", "arrow", |options| {
        options.settings(&[])?;
        table::check_names(&options.columns)?;
        Ok(open(options, ArrowFormat))
    });
    registry.register(backend.with_columns().with_prefixes().with_reader(ArrowFormat))
}
