use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::cell::{Cell, significant};
use crate::schema::{self, Column, Schema};
use crate::width::{ColumnKind, PrintedColumn, cut, fit, grid};
use crate::{Conditions, Context, LabError};

/// The rows of one experiment, as its schema describes them.
#[derive(Clone, Debug)]
pub struct Table {
    schema: &'static Schema,
    rows: Vec<Vec<Cell>>,
    conditions: Conditions,
}

impl Table {
    /// Creates a table without rows.
    pub fn new(schema: &'static Schema) -> Self {
        Self { schema, rows: Vec::new(), conditions: Conditions::default() }
    }

    /// Returns the table as measured under these conditions. If they disturbed the measurement, it makes no choices by
    /// medians alone.
    #[must_use]
    pub fn under(mut self, conditions: Conditions) -> Self {
        if conditions.disturbed.is_some() {
            for (at, _) in self.schema.row_columns().enumerate().filter(|(_, column)| column.choice) {
                self.rows.iter_mut().for_each(|row| row[at] = Cell::Empty);
            }
        }
        self.conditions = conditions;
        self
    }

    /// Returns what disturbed the measurement, if anything did.
    pub fn disturbed(&self) -> Option<&str> {
        self.conditions.disturbed.as_deref()
    }

    /// Returns the schema of its columns.
    pub fn schema(&self) -> &'static Schema {
        self.schema
    }

    /// Adds a row with the named values; the other columns are empty.
    ///
    /// # Panics
    /// Panics if the schema has no such column: a defect of the experiment.
    pub fn push<'a>(&mut self, values: impl IntoIterator<Item = (&'a str, Cell)>) {
        let mut row = vec![Cell::Empty; self.schema.row_columns().count()];
        for (name, value) in values {
            row[self.column(name)] = value;
        }
        self.rows.push(row);
    }

    /// Returns the rows as they are written: a sample's seconds follow from its images and their rate, unless the
    /// experiment gave them.
    fn written(&self) -> Vec<Vec<Cell>> {
        let mut rows = self.rows.clone();
        let seconds = self.column("sample_seconds");
        let is_rated = self.schema.columns.iter().any(|column| column.name == "images_per_second");
        for (at, row) in rows.iter_mut().enumerate() {
            if is_rated && row[seconds] == Cell::Empty {
                let images = self.number(at, "images");
                let rate = self.number(at, "images_per_second");
                row[seconds] = images.zip(rate).map(|(images, rate)| images / rate).into();
            }
        }
        rows
    }

    /// Sets a value of an existing row.
    ///
    /// # Panics
    /// Panics if there is no such row or column.
    pub fn set(&mut self, row: usize, name: &str, value: Cell) {
        let column = self.column(name);
        self.rows[row][column] = value;
    }

    /// Adds the rows of another table of the same schema.
    pub(crate) fn append(&mut self, other: &Self) {
        self.rows.extend_from_slice(&other.rows);
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns a value.
    ///
    /// # Panics
    /// Panics if there is no such row or column.
    pub fn get(&self, row: usize, name: &str) -> &Cell {
        &self.rows[row][self.column(name)]
    }

    /// Returns a number of a row; `None` if the cell holds none.
    ///
    /// # Panics
    /// Panics if there is no such row or column.
    pub fn number(&self, row: usize, name: &str) -> Option<f64> {
        match self.get(row, name) {
            Cell::Number(value) => Some(*value),
            Cell::Count(count) => Some(*count as f64),
            _ => None,
        }
    }

    fn column(&self, name: &str) -> usize {
        let at = self.schema.row_columns().position(|column| column.name == name);
        at.unwrap_or_else(|| panic!("{} has no column '{name}'", self.schema.file))
    }

    /// Writes the schema's `FILE` into `folder` atomically, each row followed by the context's columns.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn write_csv(&self, folder: &Path, context: &Context) -> Result<PathBuf, LabError> {
        let path = folder.join(self.schema.file);
        write_atomically(&path, || Ok(self.csv(context)?))?;
        Ok(path)
    }

    fn csv(&self, context: &Context) -> Result<Vec<u8>, csv::Error> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let context = self.context(context);
        writer.write_record(self.schema.all_columns().map(|column| column.name))?;
        for row in self.written() {
            let cells = row.iter().map(Cell::to_string);
            writer.write_record(cells.chain(context.clone()))?;
        }
        writer.into_inner().map_err(|error| error.into_error().into())
    }

    /// Returns the values of [`schema::CONTEXT`], which are the same in each row.
    fn context(&self, context: &Context) -> Vec<String> {
        [&context.values()[..], &self.conditions.values()].concat()
    }

    /// Returns the rows as JSON: an array of objects, with the values by column. Those of the context are texts.
    pub fn json(&self, context: &Context) -> serde_json::Value {
        let context = self.context(context);
        let mut rows = Vec::new();
        for row in self.written() {
            let context = context.iter().map(|text| serde_json::Value::from(text.as_str()));
            let columns = self.schema.all_columns().map(|column| column.name.to_owned());
            let row: serde_json::Map<_, _> = columns.zip(row.iter().map(Cell::json).chain(context)).collect();
            rows.push(row.into());
        }
        serde_json::Value::Array(rows)
    }

    /// Prints the schema's printed columns within [`WIDTH`](crate::WIDTH), aligned, with three significant digits.
    /// Words come before numbers, and marks last. Values that are the same in every row are printed once, above. Rows
    /// that did not run come below, each with its reason.
    ///
    /// # Errors
    /// Fails if `out` cannot be written.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let columns: Vec<&Column> = self.schema.row_columns().collect();
        let shown = (0..columns.len()).filter(|&at| self.is_shown(at, columns[at]));
        let (same, shown): (Vec<usize>, Vec<usize>) = shown.partition(|&at| self.is_same(at));
        if !same.is_empty() {
            let said = same.iter().map(|&at| format!("{} {}", columns[at].heading(), self.short(0, at, columns[at])));
            writeln!(out, "{}", fit(&said.collect::<Vec<_>>().join(" · "), 2))?;
        }
        let mut printed = Vec::new();
        for at in shown {
            printed.push(PrintedColumn {
                heading: columns[at].heading(),
                kind: self.kind(at),
                cells: (0..self.rows.len()).map(|row| self.short(row, at, columns[at])).collect(),
            });
        }
        let reasons: Vec<Option<&str>> = self.rows.iter().map(|row| self.not_run(row)).collect();
        grid(printed, &reasons).iter().try_for_each(|line| writeln!(out, "{line}"))
    }

    /// Formats a cell; a short time gets a smaller unit.
    fn short(&self, row: usize, at: usize, column: &Column) -> String {
        match &self.rows[row][at] {
            Cell::Number(value) => match schema::readable(*value, column.unit()) {
                (same, _) if same == *value => significant(same, 3),
                (value, unit) => format!("{} {unit}", significant(value, 3)),
            },
            Cell::Text(text) => cut(text, LONGEST),
            other => other.to_string(),
        }
    }

    /// Returns why a row has no figures, if it did not run.
    fn not_run<'a>(&self, row: &'a [Cell]) -> Option<&'a str> {
        let status = self.schema.columns.iter().position(|column| column.name == STATUS)?;
        if let Cell::Text(text) = &row[status] { Some(text.as_str()).filter(|text| *text != "ok") } else { None }
    }

    /// Returns true if several rows all have the same words or count in a column.
    fn is_same(&self, at: usize) -> bool {
        let first = &self.rows[0][at];
        let is_measured = matches!(first, Cell::Number(_));
        self.rows.len() > 1 && !is_measured && self.rows.iter().all(|row| row[at] == *first)
    }

    /// Returns true if a printed column holds any value.
    fn is_shown(&self, at: usize, column: &Column) -> bool {
        column.printed && column.name != STATUS && self.rows.iter().any(|row| row[at] != Cell::Empty)
    }

    fn kind(&self, at: usize) -> ColumnKind {
        let mut cells = self.rows.iter().map(|row| &row[at]);
        if cells.clone().any(|cell| matches!(cell, Cell::Number(_) | Cell::Count(_))) {
            ColumnKind::Numbers
        } else if cells.any(|cell| matches!(cell, Cell::Text(text) if text != "yes")) {
            ColumnKind::Words
        } else {
            ColumnKind::Marks
        }
    }
}

/// The column that says whether a row ran.
const STATUS: &str = "status";

/// Writes a file and its folder, so that readers see the old content or the new.
pub(crate) fn write_atomically(path: &Path, content: impl FnOnce() -> io::Result<Vec<u8>>) -> Result<(), LabError> {
    let partial = path.with_added_extension("partial");
    let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let written = folder.and_then(|()| std::fs::write(&partial, content()?));
    written.and_then(|()| std::fs::rename(&partial, path)).map_err(LabError::file(path))
}

/// Maximum length of a text in a printed table; the file has the full text.
const LONGEST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    static SCHEMA: Schema = Schema {
        file: "example.csv",
        made_by: "an example",
        about: "An example.",
        columns: &[
            Column::text("what", "what it is"),
            Column::rate("rate", "images/s", "how fast"),
            Column::text("hidden", "not printed").unprinted(),
            Column::text("same", "the same in every row"),
        ],
    };

    fn table() -> Table {
        let mut table = Table::new(&SCHEMA);
        table.push([
            ("what", "a, b".into()),
            ("rate", 12.3456789.into()),
            ("hidden", "x".into()),
            ("same", "s".into()),
        ]);
        table.push([("what", "c".into()), ("rate", f64::NAN.into()), ("same", "s".into())]);
        table
    }

    #[test]
    fn csv_has_every_column_and_the_context() {
        let folder = tempfile::tempdir().unwrap();
        let context = Context { effort: "full".to_owned(), seed: 7, ..Context::default() };
        let path = table().write_csv(folder.path(), &context).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("what,rate,hidden,same,") && lines[0].ends_with(",pressure,disturbed"), "{text}");
        assert!(lines[1].starts_with("\"a, b\",12.3457,x,s,,,,") && lines[1].ends_with(",full,7,,,,,"), "{text}");
        assert!(lines[2].starts_with("c,,,s,,,,"), "{text}");
    }

    #[test]
    fn a_disturbed_table_keeps_its_figures_and_makes_no_choices() {
        static CHOOSING: Schema = Schema {
            columns: &[Column::rate("rate", "images/s", "how fast"), Column::text("best", "which").choice()],
            ..SCHEMA
        };
        let mut table = Table::new(&CHOOSING);
        table.push([("rate", 2.0.into()), ("best", true.into())]);
        let quiet = table.clone().under(Conditions::default());
        assert_eq!((quiet.get(0, "best"), quiet.disturbed()), (&Cell::Flag(true), None));
        let disturbed = table.under(Conditions::default().and_disturbed(Some("why".to_owned())));
        assert_eq!(disturbed.get(0, "best"), &Cell::Empty);
        assert_eq!((disturbed.number(0, "rate"), disturbed.disturbed()), (Some(2.0), Some("why")));
        let csv = String::from_utf8(disturbed.csv(&Context::default()).unwrap()).unwrap();
        assert!(csv.ends_with(",why\n"), "{csv}");
    }

    #[test]
    fn a_sample_lasts_as_long_as_its_images_take() {
        let mut table = Table::new(&schema::CONTROL);
        table.push([("images", 30_u64.into()), ("images_per_second", 15.0.into())]);
        table.push([("images", 30_u64.into()), ("sample_seconds", 2.5.into())]);
        let rows = table.json(&Context::default());
        assert_eq!([&rows[0]["sample_seconds"], &rows[1]["sample_seconds"]], [2.0, 2.5]);
    }

    #[test]
    fn json_has_every_row_by_column() {
        let json = table().json(&Context { commit: "0123456789ab".to_owned(), ..Context::default() });
        assert_eq!((&json[0]["what"], &json[1]["commit"]), (&"a, b".into(), &"0123456789ab".into()));
        assert_eq!((&json[0]["rate"], &json[1]["hidden"]), (&12.3456789.into(), &serde_json::Value::Null));
    }

    #[test]
    fn every_table_fits_the_terminal() {
        let cell = |column: &Column, n: f64| -> Cell {
            let words = |width: usize| format!("{n}{}", "w".repeat(width - 1)).into();
            match column.name {
                _ if column.is_number() => (n * 12_345.6).into(),
                STATUS if n == 1.0 => "ok".into(),
                STATUS => format!("n/a ({})", "why ".repeat(40)).into(),
                _ if column.choice || column.about.starts_with("`yes`") => (n == 1.0).into(),
                "dtype" | "decode_scale" => words(5),
                "decoder" | "resizer" | "encoder" | "sink" | "stage" => words(9),
                _ => words(40),
            }
        };
        let mut wide = Vec::new();
        for schema in schema::ALL.into_iter().filter(|schema| schema.file != schema::PROFILE.file) {
            let mut table = Table::new(schema);
            for n in [1.0, 2.0, 1.0] {
                table.push(schema.row_columns().map(|column| (column.name, cell(column, n))));
            }
            let mut out = Vec::new();
            table.print(&mut out).unwrap();
            let out = String::from_utf8(out).unwrap();
            if out.lines().any(|line| line.chars().count() > crate::WIDTH) {
                wide.push(format!("{}:\n{out}", schema.file));
            }
        }
        assert!(wide.is_empty(), "{}", wide.join("\n"));
    }

    #[test]
    fn printed_columns_are_aligned() {
        let mut out = Vec::new();
        table().print(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "same s\nwhat  rate (1/s)\na, b        12.3\nc\n");
    }
}
