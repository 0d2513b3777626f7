#![doc = include_str!("../README.md")]

mod ahead;
mod choice;
mod fault;
mod footer;
mod guess;
mod ipc;
mod pages;
mod table;
mod text;
mod write;

use std::sync::Arc;

use arrow_schema::Fields;
use foveate_core::RegistryError;
use foveate_source::FetchError;
use foveate_source::blob::Blob;
use foveate_source::container::{ContainerBackend, ContainerOptions, ContainerRegistry, Members};

use crate::choice::Choice;
use crate::fault::guarded;
use crate::ipc::IpcBatches;
use crate::pages::ParquetBatches;
use crate::table::{Batches, Table};

/// Endings of the names of Arrow IPC files.
const ARROW: [&str; 2] = ["arrow", "feather"];

/// Adds this format to a registry, as `parquet`.
pub fn register(registry: &mut ContainerRegistry) -> Result<(), RegistryError> {
    let about = "Parquet and Arrow files, an image or a list of images per row";
    let backend = ContainerBackend::new("parquet", about, &["parquet", ARROW[0], ARROW[1]], open);
    registry.register(backend.with_schema().with_writer(write::create).with_text(open_text))
}

/// Opens a file. Without a column of images, the values of its columns of text tell which has their paths.
fn open(blob: Arc<dyn Blob>, options: &ContainerOptions) -> Result<Box<dyn Members>, FetchError> {
    let mut texts = Vec::new();
    let mut fields = Fields::empty();
    let choose = |all: &Fields| {
        if options.image_column.is_none() {
            texts = choice::texts(all);
        }
        fields = all.clone();
        match texts.first() {
            None => Choice::new(all, options),
            Some(&first) => Ok(Choice { image: first, columns: texts.clone(), ..Choice::default() }),
        }
    };
    let (mut batches, choice) = open_batches(&blob, choose)?;
    if texts.is_empty() {
        return Ok(Box::new(Table::new(batches, choice, blob.as_ref(), options)));
    }
    let first = guarded(|| batches.next())?;
    let column = guess::path_column(&fields, &texts, first.as_ref(), &choice.columns)?;
    let image_column = Some(fields[column].name().clone());
    open(blob, &ContainerOptions { image_column, ..options.clone() })
}

/// Opens a file's batches: Arrow IPC if its name ends so, otherwise Parquet.
fn open_batches(
    blob: &Arc<dyn Blob>,
    choose: impl FnOnce(&Fields) -> Result<Choice, FetchError>,
) -> Result<(Box<dyn Batches>, Choice), FetchError> {
    let extension = blob.name().rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    guarded(|| {
        if ARROW.contains(&extension.as_str()) {
            let (batches, choice) = IpcBatches::open(blob, choose)?;
            return Ok((Box::new(batches) as Box<dyn Batches>, choice));
        }
        let (batches, choice) = ParquetBatches::open(blob, choose)?;
        Ok((Box::new(batches) as Box<dyn Batches>, choice))
    })
}

/// Opens a file with all its columns, as text.
fn open_text(blob: Arc<dyn Blob>, id: &str) -> Result<(Vec<String>, Box<dyn Members>), FetchError> {
    let mut names = Vec::new();
    let (batches, choice) = open_batches(&blob, |fields| {
        let choice = Choice::all(fields, id)?;
        names = choice.columns.iter().map(|&column| fields[column].name().clone()).collect();
        Ok(choice)
    })?;
    Ok((names, Box::new(Table::new(batches, choice, blob.as_ref(), &ContainerOptions::default()))))
}
