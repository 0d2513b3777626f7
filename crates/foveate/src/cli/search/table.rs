//! Tables that appear under their names when they are whole.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, anyhow};
use foveate::sink::AtomicFile;
use foveate_sink_parquet::{Column, TableWriter};
use serde_json::Value;

use super::place::TableKind;
use crate::cli::console;
use crate::cli::exit::Usage;
use crate::cli::own_file::OwnFile;

/// The format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum TableFormat {
    Csv,
    JsonLines,
    Parquet,
}

impl TableFormat {
    /// The format of an output: by its name, and CSV on standard output (`-`).
    pub(in crate::cli) fn of(output: &Path) -> Result<Self, Usage> {
        match output.extension().and_then(|extension| extension.to_str()) {
            None if is_stdout(output) => Ok(Self::Csv),
            Some("csv") => Ok(Self::Csv),
            Some("jsonl" | "ndjson") => Ok(Self::JsonLines),
            Some("parquet") => Ok(Self::Parquet),
            _ => {
                let names = "x.parquet, x.csv or x.jsonl, or - for CSV on standard output";
                Err(Usage::from(anyhow!("cannot write {}: name an output {names}", output.display())))
            }
        }
    }
}

/// Returns true for the name of standard output.
pub(in crate::cli) fn is_stdout(output: &Path) -> bool {
    output.as_os_str() == "-"
}

/// A table that is being written.
pub(super) struct Table<'a> {
    place: OwnFile<'a>,
    columns: &'static [&'static str],
    writer: Writer,
}

enum Writer {
    Csv(csv::Writer<TableText>),
    JsonLines(TableText),
    Parquet(TableWriter),
}

/// Destination of a table's lines.
enum TableText {
    File(BufWriter<AtomicFile>),
    Stdout(Box<dyn Write>),
}

impl TableText {
    fn create(output: &Path) -> anyhow::Result<Self> {
        if is_stdout(output) {
            return Ok(Self::Stdout(Box::new(BufWriter::new(console::stdout()))));
        }
        Ok(Self::File(BufWriter::new(AtomicFile::create(output)?)))
    }

    fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::Stdout(mut out) => Ok(out.flush()?),
            Self::File(file) => Ok(file.into_inner().map_err(|error| error.into_error())?.publish()?),
        }
    }
}

impl Write for TableText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::Stdout(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Stdout(out) => out.flush(),
        }
    }
}

impl<'a> Table<'a> {
    pub(super) fn create(place: OwnFile<'a>, kind: &TableKind) -> anyhow::Result<Self> {
        let output = place.path;
        if let Some(folder) = output.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let writer = match TableFormat::of(output)? {
            TableFormat::Parquet => Writer::Parquet(TableWriter::new(output, kind.command, kind.columns)),
            TableFormat::JsonLines => Writer::JsonLines(TableText::create(output)?),
            TableFormat::Csv => {
                let mut writer = csv::Writer::from_writer(TableText::create(output)?);
                writer.write_record(kind.columns)?;
                Writer::Csv(writer)
            }
        };
        Ok(Self { place, columns: kind.columns, writer })
    }

    pub(super) fn write(&mut self, columns: Vec<Column>) -> anyhow::Result<()> {
        let rows = match &columns[0] {
            Column::Text(texts) => texts.len(),
            Column::Count(counts) => counts.len(),
            Column::Score(scores) => scores.len(),
            Column::Flag(flags) => flags.len(),
        };
        let path = self.place.path.display();
        match &mut self.writer {
            Writer::Csv(writer) => {
                for row in 0..rows {
                    let record = columns.iter().map(|column| text_of(column, row));
                    writer.write_record(record).with_context(|| format!("cannot write {path}"))?;
                }
            }
            Writer::JsonLines(out) => {
                for row in 0..rows {
                    let values = columns.iter().map(|column| value_of(column, row));
                    let names = self.columns.iter().map(|&name| name.to_owned());
                    let object: serde_json::Map<String, Value> = names.zip(values).collect();
                    writeln!(out, "{}", Value::from(object)).with_context(|| format!("cannot write {path}"))?;
                }
            }
            Writer::Parquet(writer) => writer.write(columns)?,
        }
        Ok(())
    }

    /// Publishes the table. What may be replaced is looked at again, because a search can take hours.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        if !is_stdout(self.place.path) {
            self.place.check()?;
        }
        let path = self.place.path.display();
        match self.writer {
            Writer::Csv(writer) => {
                let out = writer.into_inner().map_err(|error| error.into_error());
                out.map_err(anyhow::Error::from)
                    .and_then(TableText::finish)
                    .with_context(|| format!("cannot write {path}"))
            }
            Writer::JsonLines(out) => out.finish().with_context(|| format!("cannot write {path}")),
            Writer::Parquet(writer) => Ok(writer.finish()?),
        }
    }
}

fn text_of(column: &Column, row: usize) -> String {
    match column {
        Column::Text(texts) => texts[row].clone(),
        Column::Count(counts) => counts[row].to_string(),
        Column::Score(scores) if scores[row].is_nan() => String::new(),
        Column::Score(scores) => scores[row].to_string(),
        Column::Flag(flags) => flags[row].to_string(),
    }
}

/// The value in JSON. A score has the digits that tell it as f32.
fn value_of(column: &Column, row: usize) -> Value {
    match column {
        Column::Text(texts) => texts[row].clone().into(),
        Column::Count(counts) => counts[row].into(),
        Column::Score(scores) => scores[row].to_string().parse::<f64>().ok().filter(|score| !score.is_nan()).into(),
        Column::Flag(flags) => flags[row].into(),
    }
}
