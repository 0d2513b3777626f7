#![doc = include_str!("../README.md")]

mod layout;
mod length;
mod reader;
mod sink;
mod store;

pub use reader::{Row, Vectors};
pub use sink::LmdbSink;

use foveate_core::{Health, RegistryError};
use foveate_sink::{SinkBackend, SinkRegistry};

/// Adds this sink to a registry, as `lmdb`.
pub fn register(registry: &mut SinkRegistry) -> Result<(), RegistryError> {
    let backend = SinkBackend::new("lmdb", "LMDB, by id; readable while it is written", "lmdb", |options| {
        options.settings(&[])?;
        Ok(Box::new(LmdbSink::new(options.clone())))
    });
    registry.register(backend.with_health(health))
}

fn health() -> Health {
    use lmdb_sys::{MDB_VERSION_MAJOR, MDB_VERSION_MINOR, MDB_VERSION_PATCH};
    Health::library(format!("LMDB {MDB_VERSION_MAJOR}.{MDB_VERSION_MINOR}.{MDB_VERSION_PATCH}, vendored"))
}
