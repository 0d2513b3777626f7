//! The columns of a run's CSV files: their names, units and meanings.
//!
//! `foveate-lab` writes the files, this crate reads them, and both take the columns from here. `SCHEMA.md` is generated
//! from the same tables.

mod tables;

pub use tables::*;

/// A column of a CSV file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name in the file's first line.
    pub name: &'static str,
    /// Its kind of values.
    pub kind: Kind,
    /// Its meaning.
    pub about: &'static str,
    /// True if the printed table has this column.
    pub printed: bool,
    /// True if its numbers may be negative.
    pub signed: bool,
    /// True if it marks a choice by medians alone, without an interval. A disturbed measurement leaves it empty.
    pub choice: bool,
}

/// A column's kind of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Words.
    Text,
    /// Numbers in a unit; empty for counts.
    Number(&'static str),
    /// Fractions of a whole, which is 1.
    Share,
    /// Ratios.
    Times,
    /// Rates, in a readable unit: `images/s`.
    Rate(&'static str),
}

impl Column {
    const fn new(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, kind, about, printed: true, signed: false, choice: false }
    }

    /// A column of words.
    pub const fn text(name: &'static str, about: &'static str) -> Self {
        Self::new(name, Kind::Text, about)
    }

    /// A column of numbers.
    pub const fn number(name: &'static str, unit: &'static str, about: &'static str) -> Self {
        Self::new(name, Kind::Number(unit), about)
    }

    /// A column of fractions of a whole.
    pub const fn share(name: &'static str, about: &'static str) -> Self {
        Self::new(name, Kind::Share, about)
    }

    /// A column of ratios.
    pub const fn times(name: &'static str, about: &'static str) -> Self {
        Self::new(name, Kind::Times, about)
    }

    /// A column of rates in `unit`: `images/s`.
    pub const fn rate(name: &'static str, unit: &'static str, about: &'static str) -> Self {
        Self::new(name, Kind::Rate(unit), about)
    }

    /// Omits the column from the printed table; the file keeps it.
    #[must_use]
    pub const fn unprinted(self) -> Self {
        Self { printed: false, ..self }
    }

    /// Permits negative numbers.
    #[must_use]
    pub const fn signed(self) -> Self {
        Self { signed: true, ..self }
    }

    /// Marks a choice by medians alone.
    #[must_use]
    pub const fn choice(self) -> Self {
        Self { choice: true, ..self }
    }

    /// Returns true if it holds numbers.
    pub fn is_number(&self) -> bool {
        self.kind != Kind::Text
    }

    /// Its numbers' unit; empty for words and for numbers without one.
    pub fn unit(&self) -> &'static str {
        match self.kind {
            Kind::Text | Kind::Share => "",
            Kind::Number(unit) => unit,
            Kind::Times => "x",
            Kind::Rate(_) => "1/s",
        }
    }

    /// Its name and unit in readable form: `batch p50 (ms)`, `images/s`.
    pub fn heading(&self) -> String {
        let name = self.name.replace("_per_second", "/s");
        let suffix = format!("_{}", self.unit().to_lowercase());
        let (words, unit) = match name.strip_suffix(&suffix) {
            Some(rest) => (rest.to_owned(), self.unit()),
            None if name.contains("/s") => (name, ""),
            None => (name, self.unit()),
        };
        let words = words.replace('_', " ");
        if unit.is_empty() { words } else { format!("{words} ({unit})") }
    }
}

/// Returns a short time in a finer unit: 0.099 h is 5.94 min, 5.28e-5 ms are 52.8 ns.
pub fn readable(mut value: f64, mut unit: &'static str) -> (f64, &'static str) {
    for (coarse, shortest, factor, fine) in [("h", 1.0, 60.0, "min"), ("ms", 0.01, 1e3, "µs"), ("µs", 0.1, 1e3, "ns")]
    {
        if unit == coarse && value != 0.0 && value.abs() < shortest {
            value *= factor;
            unit = fine;
        }
    }
    (value, unit)
}

/// The columns of a CSV file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The file's name.
    pub file: &'static str,
    /// The command that writes it, without its arguments: `bench decoders`.
    pub made_by: &'static str,
    /// The meaning of its rows.
    pub about: &'static str,
    /// Its own columns in order; [`SAMPLED`] and [`CONTEXT`] follow.
    pub columns: &'static [Column],
}

impl Schema {
    /// The columns that differ from row to row: its own, and those of the samples.
    pub fn row_columns(&self) -> impl Iterator<Item = &'static Column> + use<> {
        self.columns.iter().chain(SAMPLED)
    }

    /// All columns of the file in order.
    pub fn all_columns(&self) -> impl Iterator<Item = &'static Column> + use<> {
        self.row_columns().chain(CONTEXT)
    }

    /// The column called `name`.
    pub fn column(&self, name: &str) -> Option<&'static Column> {
        self.all_columns().find(|column| column.name == name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write;

    use super::*;

    fn markdown() -> String {
        let mut page =
            "# Files of a run\n\nWhat the experiments write, a CSV file each, with `,` between fields, `\"` \
                        around those that need it, and a first line of names. Empty fields hold nothing; flags are \
                        `yes` or `no`. Written from `src/tables.rs`: change it there.\n"
                .to_owned();
        let columns = |page: &mut String, columns: &[Column]| {
            page.push_str("\n| column | unit | meaning |\n|---|---|---|\n");
            for column in columns {
                let _ = writeln!(page, "| `{}` | {} | {} |", column.name, column.unit(), column.about);
            }
        };
        for schema in ALL {
            let _ = write!(page, "\n## `{}`\n\n{}\n", schema.file, schema.about);
            columns(&mut page, schema.columns);
        }
        page.push_str("\n## In every file\n\nAt the end of each row.\n");
        columns(&mut page, &[SAMPLED as &[Column], CONTEXT].concat());
        page
    }

    #[test]
    fn the_page_says_what_the_code_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/SCHEMA.md");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, markdown()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), markdown(), "UPDATE=1 writes it anew");
    }

    #[test]
    fn files_and_columns_are_named_once() {
        let files: BTreeSet<&str> = ALL.iter().map(|schema| schema.file).collect();
        assert_eq!(files.len(), ALL.len());
        for schema in ALL {
            let names: Vec<&str> = schema.all_columns().map(|column| column.name).collect();
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{}", schema.file);
        }
    }
}
