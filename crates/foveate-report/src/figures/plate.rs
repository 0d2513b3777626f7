//! A figure with its texts, and the elements of figures.

use crate::ReportError;
use crate::canvas::Drawing;
use crate::chart::{Bar, Chart, Key, Part};
use crate::ink::Ink;
use crate::shown::{Num, Text, text};
use crate::table::Row;

/// Width in pixels of a figure on a desktop, and in its file.
pub(crate) const WIDE: f32 = 760.0;
/// Width in pixels of a figure on a phone.
pub(crate) const NARROW: f32 = 360.0;

/// A figure with its texts.
#[derive(Clone, Debug)]
pub(crate) struct Plate {
    /// File name without extension.
    pub(crate) name: &'static str,
    /// The title, as a finding if there is one.
    pub(crate) title: Text,
    /// The caption: what to read in the figure.
    pub(crate) caption: Text,
    /// The description, for screen readers.
    pub(crate) description: &'static str,
    /// A note below the chart, for every figure of a run.
    pub(crate) note: Text,
    pub(crate) chart: Chart,
}

impl Plate {
    pub(crate) fn draw(&self, width: f32) -> Result<Drawing, ReportError> {
        self.chart
            .draw(width, &self.note)
            .map_err(|error| ReportError::Figure { figure: self.name, cause: error.into() })
    }
}

pub(crate) type Plates = Result<Option<Plate>, ReportError>;

pub(crate) fn key(ink: Ink, name: impl Into<Text>) -> Key {
    Key { ink, faint: false, name: name.into() }
}

pub(crate) fn faint_key(ink: Ink, name: impl Into<Text>) -> Key {
    Key { ink, faint: true, name: name.into() }
}

/// Returns those of `columns` whose words differ among `rows`, to distinguish the rows; the first column in any case.
pub(crate) fn telling(rows: &[Row<'_>], columns: &[&'static str]) -> Vec<&'static str> {
    let differs = |column: &&str| rows.iter().any(|row| row.text(column) != rows[0].text(column));
    let first = columns.first().copied();
    first.into_iter().chain(columns.iter().skip(1).copied().filter(|column| differs(column))).collect()
}

/// Builds a row's name from these columns. A counted column's name follows its number, a setting's name precedes it.
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

/// Returns a bar for a row that could not run.
pub(crate) fn not_run(label: Text, why: Text) -> Bar {
    let label = if label.is_empty() { "not measured".into() } else { label };
    Bar { label, value: why, ..Bar::default() }
}

/// Formats a sentence on the rows that could not run, for figures that cannot show them.
pub(crate) fn absent<'a>(rows: impl IntoIterator<Item = Row<'a>>, columns: &[&'static str]) -> Text {
    let why = |row: Row<'_>| row.not_run().map(|why| text![name(&row, columns), ": ", why]);
    let absent = Text::join(rows.into_iter().filter_map(why), "; ");
    if absent.is_empty() { absent } else { text![" Not measured: ", absent, "."] }
}

/// Returns a bar of one number with a whisker.
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

/// Returns two numbers, if both exist.
pub(crate) fn both(row: &Row<'_>, low: &'static str, high: &'static str) -> Option<(Num, Num)> {
    row.number(low).zip(row.number(high))
}

/// Returns the item with the smallest number; negate the number for the largest.
pub(crate) fn least<T>(items: impl IntoIterator<Item = T>, number: impl Fn(&T) -> f64) -> Option<T> {
    items.into_iter().min_by(|a, b| number(a).total_cmp(&number(b)))
}
