//! A figure with its words, and what figures are made of.

use crate::ReportError;
use crate::canvas::Drawing;
use crate::chart::{Bar, Chart, Key, Part};
use crate::ink::Ink;
use crate::shown::{Num, Text, text};
use crate::table::Row;

/// Width in pixels of a figure on a desk, and as a file.
pub(crate) const WIDE: f32 = 760.0;
/// Width in pixels of a figure on a phone.
pub(crate) const NARROW: f32 = 360.0;

/// A figure with its words.
#[derive(Clone, Debug)]
pub(crate) struct Plate {
    /// Its name as a file.
    pub(crate) name: &'static str,
    /// What it shows, as a finding where there is one.
    pub(crate) title: Text,
    /// What to read in it.
    pub(crate) caption: Text,
    /// For those who cannot see it.
    pub(crate) description: &'static str,
    pub(crate) chart: Chart,
}

impl Plate {
    pub(crate) fn draw(&self, width: f32) -> Result<Drawing, ReportError> {
        self.chart.draw(width).map_err(|error| ReportError::Figure { figure: self.name, cause: error.into() })
    }
}

pub(crate) type Plates = Result<Option<Plate>, ReportError>;

pub(crate) fn key(ink: Ink, name: impl Into<Text>) -> Key {
    Key { ink, faint: false, name: name.into() }
}

pub(crate) fn faint_key(ink: Ink, name: impl Into<Text>) -> Key {
    Key { ink, faint: true, name: name.into() }
}

/// The words of `columns` that differ among `rows`, for telling the rows apart; the first column in any case.
pub(crate) fn telling(rows: &[Row<'_>], columns: &[&'static str]) -> Vec<&'static str> {
    let differs = |column: &&str| rows.iter().any(|row| row.text(column) != rows[0].text(column));
    let first = columns.first().copied();
    first.into_iter().chain(columns.iter().skip(1).copied().filter(|column| differs(column))).collect()
}

/// A row's name made of these columns; what is counted is said after its number, what is set before.
pub(crate) fn name(row: &Row<'_>, columns: &[&'static str]) -> Text {
    let mut name = Text::default();
    for column in columns {
        let (between, part) = match (row.number(column), column.strip_suffix('s')) {
            (Some(number), Some(one)) => {
                let thing = if number.value == 1.0 { one } else { column };
                (", ", text![number, " ", thing])
            }
            (Some(number), None) => (", ", text![*column, " ", number]),
            _ if *column == "photos" => (" ", row.set()),
            _ => (" ", row.word(column)),
        };
        name = if name.is_empty() { part } else { name + between + part };
    }
    name
}

/// A bar for a row that could not run.
pub(crate) fn not_run(label: Text, why: Text) -> Bar {
    let label = if label.is_empty() { "not measured".into() } else { label };
    Bar { label, value: why, ..Bar::default() }
}

/// A sentence on the rows that could not run, for figures that cannot show them.
pub(crate) fn absent<'a>(rows: impl IntoIterator<Item = Row<'a>>, columns: &[&'static str]) -> Text {
    let why = |row: Row<'_>| row.not_run().map(|why| text![name(&row, columns), ": ", why]);
    let absent = Text::join(rows.into_iter().filter_map(why), "; ");
    if absent.is_empty() { absent } else { text![" Not measured: ", absent, "."] }
}

/// A bar of one number with a whisker.
pub(crate) fn whiskered(
    label: Text,
    size: Num,
    ends: Option<(Num, Num)>,
    (ink, faint): (Ink, bool),
    value: Text,
) -> Bar {
    let part = Part { name: String::new(), size, ink, faint };
    Bar { label, parts: vec![part], whisker: ends, value, bold: false }
}

/// Two numbers, when both are there.
pub(crate) fn both(row: &Row<'_>, low: &'static str, high: &'static str) -> Option<(Num, Num)> {
    row.number(low).zip(row.number(high))
}

/// The item of the least or, negated, greatest number.
pub(crate) fn least<T>(items: impl IntoIterator<Item = T>, number: impl Fn(&T) -> f64) -> Option<T> {
    items.into_iter().min_by(|a, b| number(a).total_cmp(&number(b)))
}
