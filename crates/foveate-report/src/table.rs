//! Reading a run's files: their names, their content, and their faults.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use foveate_schema::{Column, Kind, Schema};

use crate::ReportError;
use crate::shown::{Num, Origin, Text};

/// A file that was read: every column exists, and every number is valid.
#[derive(Debug)]
pub(crate) struct Table {
    schema: &'static Schema,
    path: PathBuf,
    columns: BTreeMap<&'static str, usize>,
    rows: Vec<(u64, csv::StringRecord)>,
}

/// A fault and its place, before the file's name is known.
struct Fault {
    line: u64,
    column: String,
    problem: String,
}

impl Fault {
    fn into_error(self, path: PathBuf, schema: &Schema) -> ReportError {
        let Self { line, column, problem } = self;
        ReportError::Malformed { path, line, column, problem, made_by: schema.made_by }
    }
}

impl Table {
    /// Reads the file of `schema` from `folder`; `None` if it does not exist.
    pub(crate) fn read(folder: &Path, schema: &'static Schema) -> Result<Option<Self>, ReportError> {
        let path = folder.join(schema.file);
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|cause| ReportError::File { action: "read", path: path.clone(), cause })?,
        };
        Self::parse(&bytes, schema, &path).map(Some).map_err(|fault| fault.into_error(path, schema))
    }

    fn parse(bytes: &[u8], schema: &'static Schema, path: &Path) -> Result<Self, Fault> {
        let text = std::str::from_utf8(bytes).map_err(|error| Fault {
            line: 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() as u64,
            column: String::new(),
            problem: "the text is not UTF-8".to_owned(),
        })?;
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let header = reader.headers().map_err(|error| fault(&error))?.clone();
        let columns = find_columns(&header, schema)?;
        let rows = reader
            .records()
            .map(|record| {
                let record = record.map_err(|error| fault(&error))?;
                Ok((record.position().map_or(0, csv::Position::line), record.iter().map(printable).collect()))
            })
            .collect::<Result<Vec<_>, Fault>>()?;
        if rows.is_empty() {
            let problem = "there are names of columns, but no rows".to_owned();
            return Err(Fault { line: 2, column: String::new(), problem });
        }
        let table = Self { schema, path: path.to_owned(), columns, rows };
        table.check_numbers()?;
        Ok(table)
    }

    fn check_numbers(&self) -> Result<(), Fault> {
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
                return Err(Fault { line: row.line(), column: (*name).to_owned(), problem });
            }
        }
        Ok(())
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.rows.len()).map(|at| Row { table: self, at })
    }

    /// Groups its rows by equal words in `column`, with groups and rows in the file's order.
    pub(crate) fn grouped(&self, column: &'static str) -> Vec<Vec<Row<'_>>> {
        group(self.rows(), |row| row.text(column).to_owned())
    }
}

/// Groups items by equal keys, in order of first appearance.
pub(crate) fn group<T, K: PartialEq>(items: impl IntoIterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<Vec<T>> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let key = key(&item);
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, group)) => group.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Formats a field on one line, without the characters that XML forbids.
fn printable(field: &str) -> String {
    let printable = |c| match c {
        '\n' | '\t' => Some(' '),
        '\u{fffe}' | '\u{ffff}' => None,
        c => (!c.is_control()).then_some(c),
    };
    field.chars().filter_map(printable).collect()
}

fn fault(error: &csv::Error) -> Fault {
    let line = error.position().map_or(1, csv::Position::line);
    let problem = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => format!("{len} fields instead of {expected_len}"),
        _ => error.to_string(),
    };
    Fault { line, column: String::new(), problem }
}

fn find_columns(header: &csv::StringRecord, schema: &Schema) -> Result<BTreeMap<&'static str, usize>, Fault> {
    let find = |name: &'static str| {
        let mut found = header.iter().enumerate().filter(|(_, column)| *column == name).map(|(at, _)| at);
        let problem = match (found.next(), found.next()) {
            (Some(at), None) => return Ok((name, at)),
            (Some(_), Some(_)) => "there are two such columns",
            (None, _) => "there is no such column",
        };
        Err(Fault { line: 1, column: name.to_owned(), problem: problem.to_owned() })
    };
    schema.all_columns().map(|column| find(column.name)).collect()
}

/// Returns the displayed unit of a column's numbers. `%` stands for a share, of which 1 is the whole.
fn unit(column: &Column) -> &'static str {
    match column.kind {
        Kind::Text => "",
        Kind::Number(unit) | Kind::Rate(unit) => unit,
        Kind::Share => "%",
        Kind::Times => "×",
    }
}

/// One row of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    table: &'a Table,
    at: usize,
}

impl<'a> Row<'a> {
    fn line(&self) -> u64 {
        self.table.rows[self.at].0
    }

    /// Returns the name of the file.
    pub(crate) fn file(&self) -> &'static str {
        self.table.schema.file
    }

    /// Returns a field's text.
    ///
    /// # Panics
    /// Panics if the schema does not list the column: a defect of this crate.
    pub(crate) fn text(&self, column: &str) -> &'a str {
        let at = *self.table.columns.get(column).unwrap_or_else(|| panic!("{}: '{column}'", self.table.schema.file));
        &self.table.rows[self.at].1[at]
    }

    pub(crate) fn is(&self, column: &str, word: &str) -> bool {
        self.text(column) == word
    }

    fn origin(&self, column: &'static str) -> Origin {
        Origin { file: self.table.schema.file, line: self.line(), column, text: self.text(column).to_owned() }
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
        Some(Num { value, unit, how: "", from: vec![self.origin(column)] })
    }

    /// Returns a required number.
    pub(crate) fn need(&self, column: &'static str) -> Result<Num, ReportError> {
        self.number(column).ok_or_else(|| {
            let problem = "the number is missing".to_owned();
            let fault = Fault { line: self.line(), column: column.to_owned(), problem };
            fault.into_error(self.table.path.clone(), self.table.schema)
        })
    }

    /// Returns the reason why the row has no figures, if its status gives one.
    pub(crate) fn not_run(&self) -> Option<Text> {
        (!self.is("status", "ok")).then(|| self.word("status"))
    }
}
