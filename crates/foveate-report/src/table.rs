//! The files of a run: reading them, their content, and their faults.

use std::path::{Path, PathBuf};

use crate::schema::{Column, Kind, Schema};

use crate::ReportError;
use crate::text::{FieldOrigin, Num, Text};

/// The content of a run's files, read and checked.
#[derive(Debug)]
pub(crate) struct RunTables(pub(crate) Vec<CsvTable>);

impl RunTables {
    pub(crate) fn read(folder: &Path) -> Result<Self, ReportError> {
        let tables = crate::schema::ALL.into_iter().filter_map(|schema| CsvTable::read(folder, schema).transpose());
        let tables = tables.collect::<Result<Vec<_>, _>>()?;
        if tables.is_empty() {
            let looked_for = crate::schema::ALL.map(|schema| schema.file).join(", ");
            return Err(ReportError::Nothing { folder: folder.to_owned(), looked_for });
        }
        Ok(Self(tables))
    }

    pub(crate) fn missing(&self) -> Vec<Missing> {
        let missing = crate::schema::ALL.into_iter().filter(|schema| self.table(schema.file).is_none());
        missing.map(|schema| Missing { file: schema.file, made_by: schema.made_by }).collect()
    }

    pub(crate) fn table(&self, file: &str) -> Option<&CsvTable> {
        self.0.iter().find(|table| table.schema.file == file)
    }
}

/// A missing file, whose content the report therefore lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its name.
    pub file: &'static str,
    /// The command that creates it, without its arguments: `bench decoders`.
    pub made_by: &'static str,
}

/// A file that was read: every number that it has is valid. Columns may be missing, their fields count as empty.
#[derive(Debug)]
pub(crate) struct CsvTable {
    pub(crate) schema: &'static Schema,
    path: PathBuf,
    pub(crate) header: Vec<String>,
    /// Line in the file, and fields.
    pub(crate) lines: Vec<(u64, Vec<String>)>,
}

impl CsvTable {
    /// Reads the file of `schema` from `folder`; `None` if it does not exist.
    fn read(folder: &Path, schema: &'static Schema) -> Result<Option<Self>, ReportError> {
        let path = folder.join(schema.file);
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|cause| ReportError::File { action: "read", path: path.clone(), cause })?,
        };
        let mut table = Self { schema, path, header: Vec::new(), lines: Vec::new() };
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let lines = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() as u64;
            table.fault(1 + lines, "", "the text is not UTF-8".to_owned())
        })?;
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let header = reader.headers().map_err(|error| table.broken(&error))?;
        table.header = header.iter().map(printable).collect();
        for record in reader.records() {
            let record = record.map_err(|error| table.broken(&error))?;
            let line = record.position().map_or(0, csv::Position::line);
            table.lines.push((line, record.iter().map(printable).collect()));
        }
        table.check()?;
        Ok(Some(table))
    }

    fn check(&self) -> Result<(), ReportError> {
        for column in self.schema.all_columns() {
            if self.header.iter().filter(|name| *name == column.name).count() > 1 {
                return Err(self.fault(1, column.name, "there are two such columns".to_owned()));
            }
        }
        if self.schema.columns.iter().all(|column| self.header.iter().all(|name| name != column.name)) {
            return Err(self.fault(1, "", "it names none of the file's columns".to_owned()));
        }
        if self.lines.is_empty() {
            return Err(self.fault(2, "", "there are names of columns, but no rows".to_owned()));
        }
        for row in self.rows() {
            for Column { name, signed, .. } in self.schema.all_columns().filter(|column| column.is_number()) {
                let text = row.text(name);
                let problem = match text.parse::<f64>() {
                    _ if text.is_empty() => continue,
                    Err(_) => format!("'{text}' is not a number"),
                    Ok(value) if !value.is_finite() => format!("'{text}' is no finite number"),
                    Ok(value) if value < 0.0 && !signed => format!("{text} is below zero"),
                    Ok(_) => continue,
                };
                return Err(self.fault(row.line(), name, problem));
            }
        }
        Ok(())
    }

    /// Returns the first of the `needed` columns that the file lacks.
    ///
    /// # Errors
    /// [`ReportError::Malformed`] if a row that ran has an empty field in one that is there.
    pub(crate) fn lacks(&self, needed: &[&'static str]) -> Result<Option<&'static str>, ReportError> {
        for column in needed {
            if !self.header.iter().any(|name| name == column) {
                return Ok(Some(column));
            }
            if let Some(row) = self.rows().find(|row| row.not_run().is_none() && row.text(column).is_empty()) {
                return Err(self.fault(row.line(), column, "the number is missing".to_owned()));
            }
        }
        Ok(None)
    }

    fn fault(&self, line: u64, column: &str, problem: String) -> ReportError {
        let path = self.path.clone();
        let column = column.to_owned();
        let made_by = self.schema.made_by;
        ReportError::Malformed { path, line, column, problem, made_by }
    }

    fn broken(&self, error: &csv::Error) -> ReportError {
        self.fault(error.position().map_or(1, csv::Position::line), "", error.to_string())
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = TableRow<'_>> {
        (0..self.lines.len()).map(|at| TableRow { table: self, at })
    }

    /// Groups its rows by equal words in `columns`, with groups and rows in the file's order.
    pub(crate) fn grouped(&self, columns: &[&str]) -> Vec<Vec<TableRow<'_>>> {
        group(self.rows(), columns)
    }
}

/// Groups rows by equal words in `columns`, in order of first appearance.
pub(crate) fn group<'a>(rows: impl IntoIterator<Item = TableRow<'a>>, columns: &[&str]) -> Vec<Vec<TableRow<'a>>> {
    let mut groups: Vec<Vec<TableRow<'_>>> = Vec::new();
    for row in rows {
        let mut equal =
            groups.iter_mut().filter(|rows| columns.iter().all(|column| rows[0].text(column) == row.text(column)));
        match equal.next() {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// Formats a field on one line, without the characters that XML forbids.
fn printable(field: &str) -> String {
    let mut printable = field.replace(['\n', '\t'], " ");
    printable.retain(|c| !c.is_control() && !['\u{fffe}', '\u{ffff}'].contains(&c));
    printable
}

/// Returns the displayed unit of a column's numbers. `%` stands for a share, of which 1 is the whole.
pub(crate) fn unit(column: &Column) -> &'static str {
    match column.kind {
        Kind::Text => "",
        Kind::Number(unit) | Kind::Rate(unit) => unit,
        Kind::Share => "%",
        Kind::Times => "×",
    }
}

/// The end of a device's name whose time follows from an assumption.
pub(crate) const ASSUMED: &str = " assumed";

/// One row of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableRow<'a> {
    pub(crate) table: &'a CsvTable,
    at: usize,
}

impl<'a> TableRow<'a> {
    pub(crate) fn line(&self) -> u64 {
        self.table.lines[self.at].0
    }

    /// Returns a field's text; empty if the file lacks the column.
    pub(crate) fn text(&self, column: &str) -> &'a str {
        let at = self.table.header.iter().position(|name| name == column);
        at.map_or("", |at| &self.table.lines[self.at].1[at])
    }

    pub(crate) fn is(&self, column: &str, word: &str) -> bool {
        self.text(column) == word
    }

    fn origin(&self, column: &'static str) -> FieldOrigin {
        FieldOrigin { file: self.table.schema.file, line: self.line(), column }
    }

    /// Returns one or more words, traced if they have digits.
    pub(crate) fn word(&self, column: &'static str) -> Text {
        Text::word(self.text(column), self.origin(column))
    }

    /// Returns the name of its set of photos, without their sizes.
    pub(crate) fn set(&self) -> Text {
        let name = self.text("photos").split(',').next().unwrap_or_default();
        Text::word(name, self.origin("photos"))
    }

    /// Returns the same as part of a sentence.
    pub(crate) fn photos(&self) -> Text {
        let name = self.set();
        if name.plain() == "as given" { "photos as given".into() } else { name + " photos" }
    }

    /// Returns a number; `None` if the field is empty.
    pub(crate) fn number(&self, column: &'static str) -> Option<Num> {
        let value = self.text(column).parse().ok()?;
        let unit = self.table.schema.column(column).map_or("", unit);
        Some(Num::field(value, unit, self.origin(column)))
    }

    /// Returns true if the time of the forward follows from an assumption.
    pub(crate) fn has_assumed_forward(&self) -> bool {
        self.text("device").ends_with(ASSUMED)
    }

    /// Returns the reason why the row has no figures, if its status gives one.
    pub(crate) fn not_run(&self) -> Option<Text> {
        (!["", "ok"].contains(&self.text("status"))).then(|| self.word("status"))
    }
}
