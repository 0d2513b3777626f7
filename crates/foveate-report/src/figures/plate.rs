//! A figure's content, and what several figures have in common.

use crate::chart::{BarPart, ChartBar, Panel};
use crate::svg::{self, Chart, Ink};
use crate::table::{CsvTable, TableRow};
use crate::text::{Num, Text, text};

/// The content of a figure.
pub(crate) struct Plate {
    /// The title, as a finding if there is one.
    pub(crate) title: Text,
    chart: Box<dyn Chart>,
    /// The end of the caption, from the figure's rows.
    pub(crate) more: Text,
    /// A note below the chart, for every figure of a run.
    note: Text,
}

impl Plate {
    pub(super) fn new(title: Text, more: Text, chart: impl Chart + 'static) -> Option<Self> {
        Some(Self { title, chart: Box::new(chart), more, note: Text::default() })
    }

    pub(super) fn with_note(self, note: &Text) -> Self {
        Self { note: note.clone(), ..self }
    }

    /// Draws it as a file with its caption, or as a part of the page.
    pub(crate) fn draw(&self, width: f64, caption: Option<&str>) -> String {
        svg::draw(&*self.chart, width, &self.title, &self.note, caption)
    }
}

/// Returns those of `columns` whose words differ among `rows`, to distinguish the rows; the first column in any case.
pub(super) fn telling(rows: &[TableRow<'_>], columns: &[&'static str]) -> Vec<&'static str> {
    let mut telling = columns.to_vec();
    telling.retain(|column| *column == columns[0] || rows.iter().any(|row| row.text(column) != rows[0].text(column)));
    telling
}

/// Builds a row's name from these columns. A counted column's name follows its number, a setting's name precedes it.
pub(super) fn name(row: &TableRow<'_>, columns: &[&'static str]) -> Text {
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

/// A rate, and the two ends of its whisker.
pub(super) const RATE: [&str; 3] = ["images_per_second", "images_per_second_min", "images_per_second_max"];

/// Returns the bar of a row's number, with a whisker between two others; or why the row could not run.
pub(super) fn bar(row: &TableRow<'_>, label: Text, [size, low, high]: [&'static str; 3], ink: Ink) -> ChartBar {
    match row.number(size).filter(|_| row.not_run().is_none()) {
        Some(size) => ChartBar { whisker: row.number(low).zip(row.number(high)), ..simple(label, size, ink) },
        None => {
            let label = if label.is_empty() { "not measured".into() } else { label };
            ChartBar { label, value: row.not_run().unwrap_or_default(), ..ChartBar::default() }
        }
    }
}

/// Returns a bar of one number.
pub(super) fn simple(label: Text, size: Num, ink: Ink) -> ChartBar {
    let value = Text::from(&size);
    ChartBar { label, parts: vec![BarPart { name: String::new(), size, ink }], value, ..ChartBar::default() }
}

/// Returns a panel for each group of rows, under the name of its photos.
pub(super) fn panels<'a>(groups: Vec<Vec<TableRow<'a>>>, bar: impl Fn(&TableRow<'a>) -> ChartBar) -> Vec<Panel> {
    let panels = groups.into_iter();
    panels.map(|rows| Panel { heading: rows[0].word("photos"), bars: rows.iter().map(&bar).collect() }).collect()
}

/// Formats a sentence on the rows that could not run, for figures that cannot show them.
pub(super) fn absent(table: &CsvTable, columns: &[&'static str]) -> Text {
    let absent = table.rows().filter_map(|row| row.not_run().map(|why| text![name(&row, columns), ": ", why]));
    sentence(" Not measured: ", Text::join(absent, "; "))
}

/// Returns `start`, `words` and a full stop; nothing if there are no words.
pub(super) fn sentence(start: &str, words: Text) -> Text {
    if words.is_empty() { words } else { text![start, words, "."] }
}

/// Returns the row with the smallest number in `column`.
pub(super) fn least<'a>(
    rows: impl IntoIterator<Item = TableRow<'a>>,
    column: &'static str,
) -> Option<(TableRow<'a>, Num)> {
    let numbers = rows.into_iter().filter_map(|row| Some((row, row.number(column)?)));
    numbers.min_by(|(_, a), (_, b)| a.value.total_cmp(&b.value))
}

/// Returns the row with the largest number in `column`, the first of several.
pub(super) fn most<'a>(
    rows: impl IntoIterator<Item = TableRow<'a>>,
    column: &'static str,
) -> Option<(TableRow<'a>, Num)> {
    let numbers = rows.into_iter().filter_map(|row| Some((row, row.number(column)?)));
    numbers.reduce(|most, next| if next.1.value > most.1.value { next } else { most })
}
