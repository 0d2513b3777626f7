#![doc = include_str!("../README.md")]

mod format;
mod layout;
mod reader;
mod store;

pub use format::LmdbFormat;
pub use reader::{LmdbRow, LmdbVectors};

use foveate_core::{Health, RegistryError};
use foveate_sink::parts::PartSink;
use foveate_sink::{SinkBackend, SinkRegistry};

/// Adds this sink to a registry, as `lmdb`.
pub fn register(registry: &mut SinkRegistry) -> Result<(), RegistryError> {
    let backend = SinkBackend::new("lmdb", "LMDB, vectors by id", "lmdb", |options| {
        options.settings(&[])?;
        Ok(Box::new(PartSink::new(options.clone(), LmdbFormat)))
    });
    registry.register(backend.with_health(health).with_reader(LmdbFormat))
}

fn health() -> Health {
    use lmdb_sys::{MDB_VERSION_MAJOR, MDB_VERSION_MINOR, MDB_VERSION_PATCH};
    Health::library(format!("LMDB {MDB_VERSION_MAJOR}.{MDB_VERSION_MINOR}.{MDB_VERSION_PATCH}, vendored"))
}
