#![doc = include_str!("../README.md")]

mod ahead;
mod choice;
mod fault;
mod footer;
mod ipc;
mod pages;
mod table;
mod text;
mod write;

use std::sync::Arc;

use foveate_core::RegistryError;
use foveate_source::FetchError;
use foveate_source::blob::Blob;
use foveate_source::container::{ContainerBackend, ContainerOptions, ContainerRegistry, Members};

use crate::choice::Choice;
use crate::fault::guarded;
use crate::ipc::IpcBatches;
use crate::pages::ParquetBatches;
use crate::table::Table;

/// Endings of the names of Arrow IPC files.
const ARROW: [&str; 2] = ["arrow", "feather"];

/// Adds this format to a registry, as `parquet`.
pub fn register(registry: &mut ContainerRegistry) -> Result<(), RegistryError> {
    let about = "Parquet and Arrow files, an image per row";
    let backend = ContainerBackend::new("parquet", about, &["parquet", ARROW[0], ARROW[1]], open);
    registry.register(backend.with_schema().with_writer(write::create).with_text(open_text))
}

/// Opens a file: Arrow IPC if its name ends so, otherwise Parquet.
fn open(blob: Arc<dyn Blob>, options: &ContainerOptions) -> Result<Box<dyn Members>, FetchError> {
    let extension = blob.name().rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    if ARROW.contains(&extension.as_str()) {
        let (batches, choice) = guarded(|| IpcBatches::open(&blob, options))?;
        return Ok(Box::new(Table::new(batches, choice, blob.as_ref(), options)));
    }
    let (batches, choice) = guarded(|| ParquetBatches::open(&blob, |fields| Choice::new(fields, options)))?;
    Ok(Box::new(Table::new(batches, choice, blob.as_ref(), options)))
}

/// Opens a Parquet file with all its columns, as text.
fn open_text(blob: Arc<dyn Blob>, id: &str) -> Result<(Vec<String>, Box<dyn Members>), FetchError> {
    let mut names = Vec::new();
    let (batches, choice) = guarded(|| {
        ParquetBatches::open(&blob, |fields| {
            let choice = Choice::all(fields, id)?;
            names = choice.columns.iter().map(|&column| fields[column].name().clone()).collect();
            Ok(choice)
        })
    })?;
    Ok((names, Box::new(Table::new(batches, choice, blob.as_ref(), &ContainerOptions::default()))))
}
