//! Tables that appear under their names when they are whole.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use foveate::sink::record_of;
use foveate_sink_parquet::{Column, TableWriter};

use crate::cli::exit::Usage;

/// Tells Parquet from CSV.
pub(in crate::cli) fn is_parquet(output: &Path) -> Result<bool, Usage> {
    match output.extension().and_then(|extension| extension.to_str()) {
        Some("csv") => Ok(false),
        Some("parquet") => Ok(true),
        _ => Err(Usage::from(anyhow!("cannot write {}: name an output x.parquet or x.csv", output.display()))),
    }
}

/// A table that is being written.
pub(super) enum Table {
    Csv(PathBuf, csv::Writer<File>),
    Parquet(PathBuf, TableWriter),
}

impl Table {
    pub(super) fn create(output: &Path, names: &'static [&'static str]) -> anyhow::Result<Self> {
        let path = record_of(output, "partial");
        if let Some(folder) = output.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        if is_parquet(output)? {
            let writer = TableWriter::new(&path, names);
            return Ok(Self::Parquet(path, writer));
        }
        let mut writer = csv::Writer::from_path(&path).with_context(|| format!("cannot write {}", path.display()))?;
        writer.write_record(names)?;
        Ok(Self::Csv(path, writer))
    }

    pub(super) fn write(&mut self, columns: Vec<Column>) -> anyhow::Result<()> {
        match self {
            Self::Csv(path, writer) => {
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
                for row in 0..rows {
                    let record = columns.iter().map(|column| text(column, row));
                    writer.write_record(record).with_context(|| format!("cannot write {}", path.display()))?;
                }
                Ok(())
            }
            Self::Parquet(_, writer) => Ok(writer.write(columns)?),
        }
    }

    pub(super) fn finish(self, output: &Path) -> anyhow::Result<()> {
        let path = match self {
            Self::Csv(path, writer) => {
                let file = writer.into_inner().map_err(|error| error.into_error());
                file.and_then(|file| file.sync_all()).with_context(|| format!("cannot write {}", path.display()))?;
                path
            }
            Self::Parquet(path, writer) => {
                writer.finish()?;
                path
            }
        };
        fs::rename(&path, output).with_context(|| format!("cannot write {}", output.display()))
    }
}
