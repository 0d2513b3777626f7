#![doc = include_str!("../README.md")]

mod compression;
mod error;
mod reader;
mod schema;
mod sink;
mod table;

pub use sink::ParquetFormat;
pub use table::{Column, TableWriter, table_command};

use foveate_core::RegistryError;
use foveate_sink::parts::open;
use foveate_sink::{SinkBackend, SinkRegistry};

/// Adds this sink to a registry, as `parquet`.
pub fn register(registry: &mut SinkRegistry) -> Result<(), RegistryError> {
    let about = "Apache Parquet, one row group or more per part";
    let backend =
        SinkBackend::new("parquet", about, "parquet", |options| Ok(open(options, ParquetFormat::new(options)?)));
    registry.register(backend.with_columns().with_prefixes().with_reader(ParquetFormat::default()))
}
