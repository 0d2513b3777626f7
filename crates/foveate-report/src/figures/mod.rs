//! The list of figures, with the file and content of each.

mod diagnosis;
mod parts;
mod plan;
mod plate;
mod stages;
mod sweeps;
pub(crate) mod worker;

use self::plate::Plates;
pub(crate) use self::plate::{NARROW, Plate, WIDE};
use crate::ReportError;
use crate::run::Run;
use crate::shown::{Text, text};
use crate::table::{Row, Table};

/// Returns every figure that the run's files allow, in the order of the page.
pub(crate) fn plates(run: &Run) -> Result<Vec<Plate>, ReportError> {
    let figures: [fn(&Run) -> Plates; 18] = [
        stages::pipeline,
        stages::stages,
        parts::decoders,
        parts::resizers,
        parts::forward,
        parts::sinks,
        sweeps::storage,
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
    let note = stand_in(run);
    let noted = |plate: Plate| Plate { note: note.clone(), ..plate };
    figures.iter().filter_map(|figure| figure(run).transpose()).map(|plate| plate.map(noted)).collect()
}

/// Formats which device the forward stands in for, if it does.
fn stand_in(run: &Run) -> Text {
    let device = run.tables().flat_map(Table::rows).find(|row| row.text("device").starts_with("stand-in"));
    device.map_or_else(Text::default, |row| text!["The forward is a ", row.word("device"), "."])
}

/// A question that the report answers in a few words at the top.
pub(crate) struct Headline {
    pub(crate) question: &'static str,
    pub(crate) answer: Text,
    pub(crate) more: Text,
}

/// Returns the results of a run, as far as its files contain them.
pub(crate) fn headlines(run: &Run) -> Vec<Headline> {
    let answers: [fn(&Run) -> Option<Headline>; 4] = [bound, remedy, gain, projection];
    answers.iter().filter_map(|answer| answer(run)).collect()
}

fn bound(run: &Run) -> Option<Headline> {
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

fn remedy(run: &Run) -> Option<Headline> {
    let (row, times) = diagnosis::best(run.table("remedies.csv")?.rows())?;
    let measured = row.number("measured").map_or_else(Text::default, |rate| text![", measured ", rate]);
    let more = text![row.word("change"), ": expected ", row.number("predicted"), measured, "."];
    Some(Headline { question: "What to do first", answer: text![row.word("remedy"), ", ", times], more })
}

fn gain(run: &Run) -> Option<Headline> {
    let table = run.table("headline.csv")?;
    let gains = sweeps::gains(table);
    let first = gains.first()?;
    let describe = |row: &Row<'_>| text![row.number("images_per_second"), " on ", row.photos()];
    let others = gains[1..].iter().map(|gain| text![&gain.times, ", ", describe(&gain.row)]);
    let more = Text::join([describe(&first.row)].into_iter().chain(others), "; ") + "." + sweeps::better_alone(first);
    Some(Headline { question: "What all improvements gave", answer: text![&first.times, " the baseline"], more })
}

fn projection(run: &Run) -> Option<Headline> {
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
