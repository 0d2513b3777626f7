#![doc = include_str!("../README.md")]

mod ahead;
mod choice;
mod fault;
mod footer;
mod guess;
mod ipc;
mod open;
mod pages;
mod rows;
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
use crate::open::{ARROW, open_batches};
use crate::table::TableMembers;

/// Adds this format to a registry, as `parquet`.
pub fn register(registry: &mut ContainerRegistry) -> Result<(), RegistryError> {
    let about = "Parquet and Arrow files, an image or a list of images per row";
    let backend = ContainerBackend::new("parquet", about, &["parquet", ARROW[0], ARROW[1]], open);
    registry.register(backend.with_schema().with_writer(write::create).with_rows(rows::open))
}

/// Opens a file. Without a column of images, the values of its columns of text tell which has their paths.
fn open(blob: Arc<dyn Blob>, options: &ContainerOptions) -> Result<Box<dyn Members>, FetchError> {
    let mut texts = Vec::new();
    let mut fields = Fields::empty();
    let (mut batches, choice) = open_batches(&blob, |all| {
        if options.image_column.is_none() {
            texts = choice::texts(all);
        }
        fields = all.clone();
        match texts.first() {
            None => Choice::new(all, options),
            Some(&first) => Ok(Choice { image: first, columns: texts.clone(), ..Choice::default() }),
        }
    })?;
    if texts.is_empty() {
        return Ok(Box::new(TableMembers::new(batches, choice, blob.as_ref(), options)));
    }
    let first = guarded(|| batches.next())?;
    let column = guess::path_column(&fields, &texts, first.as_ref(), &choice.columns)?;
    let image_column = Some(fields[column].name().clone());
    open(blob, &ContainerOptions { image_column, ..options.clone() })
}
