//! Tables that appear under their names when they are whole.

use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow};
use foveate::sink::AtomicFile;
use foveate_sink_parquet::{Column, TableWriter};

use super::place::TableKind;
use crate::cli::exit::Usage;
use crate::cli::own_file::OwnFile;

/// Tells Parquet from CSV.
pub(in crate::cli) fn is_parquet(output: &Path) -> Result<bool, Usage> {
    match output.extension().and_then(|extension| extension.to_str()) {
        Some("csv") => Ok(false),
        Some("parquet") => Ok(true),
        _ => Err(Usage::from(anyhow!("cannot write {}: name an output x.parquet or x.csv", output.display()))),
    }
}

/// A table that is being written.
pub(super) struct Table<'a> {
    place: OwnFile<'a>,
    writer: Writer,
}

enum Writer {
    Csv(csv::Writer<AtomicFile>),
    Parquet(TableWriter),
}

impl<'a> Table<'a> {
    pub(super) fn create(place: OwnFile<'a>, kind: &TableKind) -> anyhow::Result<Self> {
        let output = place.path;
        if let Some(folder) = output.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let writer = match is_parquet(output)? {
            true => Writer::Parquet(TableWriter::new(output, kind.command, kind.columns)),
            false => {
                let mut writer = csv::Writer::from_writer(AtomicFile::create(output)?);
                writer.write_record(kind.columns)?;
                Writer::Csv(writer)
            }
        };
        Ok(Self { place, writer })
    }

    pub(super) fn write(&mut self, columns: Vec<Column>) -> anyhow::Result<()> {
        match &mut self.writer {
            Writer::Csv(writer) => {
                let text = |column: &Column, row: usize| match column {
                    Column::Text(texts) => texts[row].clone(),
                    Column::Count(counts) => counts[row].to_string(),
                    Column::Score(scores) if scores[row].is_nan() => String::new(),
                    Column::Score(scores) => scores[row].to_string(),
                    Column::Flag(flags) => flags[row].to_string(),
                };
                let rows = match &columns[0] {
                    Column::Text(texts) => texts.len(),
                    Column::Count(counts) => counts.len(),
                    Column::Score(scores) => scores.len(),
                    Column::Flag(flags) => flags.len(),
                };
                let path = self.place.path.display();
                for row in 0..rows {
                    let record = columns.iter().map(|column| text(column, row));
                    writer.write_record(record).with_context(|| format!("cannot write {path}"))?;
                }
                Ok(())
            }
            Writer::Parquet(writer) => Ok(writer.write(columns)?),
        }
    }

    /// Publishes the table. What may be replaced is looked at again, because a search can take hours.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        self.place.check()?;
        match self.writer {
            Writer::Csv(writer) => {
                let path = self.place.path.display();
                let file = writer.into_inner().map_err(|error| error.into_error());
                Ok(file.with_context(|| format!("cannot write {path}"))?.publish()?)
            }
            Writer::Parquet(writer) => Ok(writer.finish()?),
        }
    }
}
