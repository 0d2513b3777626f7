//! Which figures there are, and what each shows of which file.

mod diagnosis;
mod parts;
mod plan;
mod stages;
mod sweeps;
pub(crate) mod worker;

use crate::canvas::Drawing;
use crate::chart::{Bar, Chart, Key, Part};
use crate::ink::Ink;
use crate::shown::{Num, Text, text};
use crate::table::Row;
use crate::{Report, ReportError};

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

type Plates = Result<Option<Plate>, ReportError>;

/// Every figure that the run's files allow, in the order of the page.
pub(crate) fn plates(run: &Report) -> Result<Vec<Plate>, ReportError> {
    let figures: [fn(&Report) -> Plates; 17] = [
        stages::pipeline,
        stages::stages,
        parts::decoders,
        parts::resizers,
        parts::forward,
        parts::sinks,
        sweeps::batch,
        sweeps::workers,
        sweeps::headline,
        sweeps::extrapolation,
        sweeps::tuning,
        diagnosis::ladder,
        diagnosis::remedies,
        plan::timeline,
        plan::accuracy,
        plan::walls,
        worker::configurations,
    ];
    figures.iter().filter_map(|figure| figure(run).transpose()).collect()
}

fn key(ink: Ink, name: impl Into<Text>) -> Key {
    Key { ink, faint: false, name: name.into() }
}

fn faint_key(ink: Ink, name: impl Into<Text>) -> Key {
    Key { ink, faint: true, name: name.into() }
}

/// The words of `columns` that differ among `rows`, for telling the rows apart; the first column in any case.
fn telling(rows: &[Row<'_>], columns: &[&'static str]) -> Vec<&'static str> {
    let differs = |column: &&str| rows.iter().any(|row| row.text(column) != rows[0].text(column));
    let first = columns.first().copied();
    first.into_iter().chain(columns.iter().skip(1).copied().filter(|column| differs(column))).collect()
}

/// A row's name made of these columns; what is counted is said after its number, what is set before.
fn name(row: &Row<'_>, columns: &[&'static str]) -> Text {
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
fn not_run(label: Text, why: Text) -> Bar {
    let label = if label.is_empty() { "not measured".into() } else { label };
    Bar { label, value: why, ..Bar::default() }
}

/// A sentence on the rows that could not run, for figures that cannot show them.
fn absent<'a>(rows: impl IntoIterator<Item = Row<'a>>, columns: &[&'static str]) -> Text {
    let why = |row: Row<'_>| row.not_run().map(|why| text![name(&row, columns), ": ", why]);
    let absent = Text::join(rows.into_iter().filter_map(why), "; ");
    if absent.is_empty() { absent } else { text![" Not measured: ", absent, "."] }
}

/// A bar of one number with a whisker.
fn whiskered(label: Text, size: Num, ends: Option<(Num, Num)>, (ink, faint): (Ink, bool), value: Text) -> Bar {
    let part = Part { name: String::new(), size, ink, faint };
    Bar { label, parts: vec![part], whisker: ends, value, bold: false }
}

/// Two numbers, when both are there.
fn both(row: &Row<'_>, low: &'static str, high: &'static str) -> Option<(Num, Num)> {
    row.number(low).zip(row.number(high))
}

/// The item of the least or, negated, greatest number.
fn least<T>(items: impl IntoIterator<Item = T>, number: impl Fn(&T) -> f64) -> Option<T> {
    items.into_iter().min_by(|a, b| number(a).total_cmp(&number(b)))
}

/// A question that the report answers in a few words, on top.
pub(crate) struct Headline {
    pub(crate) question: &'static str,
    pub(crate) answer: Text,
    pub(crate) more: Text,
}

/// What a run showed, as far as its files say.
pub(crate) fn headlines(run: &Report) -> Vec<Headline> {
    let answers: [fn(&Report) -> Option<Headline>; 4] = [bound, remedy, gain, projection];
    answers.iter().filter_map(|answer| answer(run)).collect()
}

fn bound(run: &Report) -> Option<Headline> {
    let question = "What bounds the run";
    if let Some(table) = run.table("diagnosis.csv") {
        return Some(match diagnosis::culprit(table.rows()) {
            Some(row) => Headline {
                question,
                answer: row.word("adds"),
                more: text!["With it, ", diagnosis::drop_of(&row), " (", row.photos(), ")."],
            },
            None => Headline {
                question,
                answer: "no single stage".into(),
                more: text!["With all of them at work, ", diagnosis::kept(table)?, "."],
            },
        });
    }
    let (row, share) = stages::most(run)?;
    let more = text![share, " of a serial job on ", row.photos(), "."];
    Some(Headline { question, answer: row.word("stage"), more })
}

fn remedy(run: &Report) -> Option<Headline> {
    let (row, times) = diagnosis::best(run.table("remedies.csv")?.rows())?;
    let measured = row.number("measured").map_or_else(Text::default, |rate| text![", measured ", rate]);
    let more = text![row.word("change"), ": expected ", row.number("predicted"), measured, "."];
    Some(Headline { question: "What to do first", answer: text![row.word("remedy"), ", ", times], more })
}

fn gain(run: &Report) -> Option<Headline> {
    let table = run.table("headline.csv")?;
    let mut gains = sweeps::gains(table).into_iter();
    let (row, times) = gains.next()?;
    let describe = |row: &Row<'_>| text![row.number("images_per_second"), " on ", row.photos()];
    let others = gains.map(|(row, times)| text![times, ", ", describe(&row)]);
    let more = Text::join([describe(&row)].into_iter().chain(others), "; ") + ".";
    Some(Headline { question: "What all improvements gave", answer: text![times, " the baseline"], more })
}

fn projection(run: &Report) -> Option<Headline> {
    let row = run.table("extrapolation.csv")?.rows().next()?;
    let more = text![
        row.number("hours_low"),
        " to ",
        row.number("hours_high"),
        " for ",
        row.number("target_images"),
        " ",
        row.photos(),
        "."
    ];
    Some(Headline { question: "How long many images take", answer: row.number("hours")?.into(), more })
}
