//! The list of figures, with the file and content of each. `page.html` has their captions.

mod diagnosis;
mod drift;
mod parts;
mod plan;
mod plate;
mod stages;
mod sweeps;
mod worker;

use self::diagnosis::RemedyGain;
pub(crate) use self::plan::median_of;
pub(crate) use self::plate::Plate;
use crate::ReportError;
use crate::table::{CsvTable, RunTables};
use crate::text::{Text, text};

/// Draws a figure from its file; `None` if the file has no rows for it.
type Draw = fn(&CsvTable) -> Option<Plate>;

/// Name, file, numbers that no row may lack, and content of every figure.
const FIGURES: [(&str, &str, &[&str], Draw); 23] = [
    ("pipeline", "profile.csv", &["share_of_wall", "ms_per_image"], stages::pipeline),
    ("stages", "profile.csv", &["share_of_wall", "ms_per_image"], stages::stages),
    ("decoders", "decoders.csv", &["p50_ms"], parts::decoders),
    ("resizers", "resizers.csv", &["p50_ms"], parts::resizers),
    ("forward", "forward.csv", &["p50_ms"], parts::forward),
    ("sinks", "sinks.csv", &["rows_per_second"], parts::sinks),
    ("copies", "copies.csv", &["mb_per_second"], parts::copies),
    ("read", "read.csv", &["requests", "mb_per_second"], parts::read),
    ("storage", "storage.csv", &["requests", "images_per_second"], sweeps::storage),
    ("batch_sweep", "batch_sweep.csv", &["batch", "images_per_second"], sweeps::batch),
    ("job_batch_sweep", "job_batch_sweep.csv", &["batch", "images_per_second"], sweeps::job_batch),
    ("worker_sweep", "worker_sweep.csv", &["workers", "images_per_second"], sweeps::workers),
    ("headline", "headline.csv", &["images_per_second"], sweeps::headline),
    ("extrapolation", "extrapolation.csv", &["images_per_second"], sweeps::extrapolation),
    ("tuning", "tuning.csv", &["times"], sweeps::tuning),
    ("drift", "drift.csv", &["drift_max", "images_per_second"], drift::frontier),
    ("diagnosis", "diagnosis.csv", &["images_per_second"], diagnosis::ladder),
    ("remedies", "remedies.csv", &["now"], diagnosis::remedies),
    ("timeline", "timeline.csv", &["start_ms", "end_ms"], plan::timeline),
    ("plan", "plan.csv", &["predicted", "measured"], plan::accuracy),
    ("walls", "batch_plan.csv", &["batch", "storage_ms", "cpu_ms", "compute_ms"], plan::walls),
    ("machines", "machines.csv", &["money", "job_images"], plan::machines),
    ("worker", "worker.csv", &["requests_per_second"], worker::configurations),
];

/// The figures that a run's files allow, by name, and why others are left out: their files lack a column.
pub(crate) struct Plates {
    pub(crate) drawn: Vec<(&'static str, Plate)>,
    pub(crate) left_out: Vec<String>,
}

/// Returns every figure that the run's files allow.
pub(crate) fn plates(run: &RunTables) -> Result<Plates, ReportError> {
    let mut drawn = Vec::new();
    let mut left_out = Vec::new();
    let note = stand_in(run);
    for (name, file, needed, draw) in FIGURES {
        let Some(table) = run.table(file) else { continue };
        match table.lacks(needed)? {
            Some(column) => left_out.push(format!("{name}: {file} has no column {column}")),
            None => drawn.extend(draw(table).map(|plate| (name, plate.with_note(&note)))),
        }
    }
    Ok(Plates { drawn, left_out })
}

/// Formats which device the forward stands in for, if it does.
fn stand_in(run: &RunTables) -> Text {
    let device = run.0.iter().flat_map(CsvTable::rows).find(|row| row.text("device").starts_with("stand-in"));
    let Some(row) = device else { return Text::default() };
    let dashed = if row.has_assumed_forward() { " Dashed lines follow from the assumption." } else { "" };
    text!["The forward is a ", row.word("device"), ".", dashed]
}

/// A question that the report answers at the top, the answer, and more on it.
pub(crate) struct KeyResult {
    pub(crate) question: &'static str,
    pub(crate) answer: Text,
    pub(crate) more: Text,
}

/// Returns the results of a run, as far as its files contain them.
pub(crate) fn answers(run: &RunTables) -> Vec<KeyResult> {
    [bound, remedy, gain, projection].iter().filter_map(|answer| answer(run)).collect()
}

fn bound(run: &RunTables) -> Option<KeyResult> {
    let (answer, more) = match run.table("diagnosis.csv").map(|table| (table, diagnosis::culprit(table))) {
        Some((_, Some(row))) => {
            (row.word("adds"), text!["With it, ", diagnosis::drop_of(&row), " (", row.photos(), ")."])
        }
        Some((table, None)) => {
            let kept = diagnosis::kept(table)?;
            let answer = if kept.value >= diagnosis::ENCODER_BOUND { "the encoder" } else { "no single stage" };
            (answer.into(), text!["With all stages at work, throughput is ", kept, " of the encoder's own."])
        }
        None => {
            let (row, share) = stages::greatest(stages::serial(run.table("profile.csv")?).first()?)?;
            (row.word("stage"), text![share, " of a serial job on ", row.photos(), "."])
        }
    };
    Some(KeyResult { question: "What bounds the run", answer, more })
}

fn remedy(run: &RunTables) -> Option<KeyResult> {
    let (row, RemedyGain { how, times, rate }) = diagnosis::best(run.table("remedies.csv")?)?;
    let error = run.table("plan.csv").filter(|_| how == "expected").and_then(plan::median_error);
    let error = error.map_or_else(Text::default, |(error, _)| text![" Such predictions were off by ", error, " here."]);
    let more = text![row.word("change"), ": ", how, " ", rate, "."] + error;
    Some(KeyResult { question: "What to do first", answer: text![row.word("remedy"), ", ", times], more })
}

fn gain(run: &RunTables) -> Option<KeyResult> {
    let gains = sweeps::gains(run.table("headline.csv")?);
    let first = gains.first()?;
    let mut more = Text::default();
    for gain in &gains {
        if !more.is_empty() {
            more = text![more, "; ", &gain.times, ", "];
        }
        more = text![more, gain.row.number("images_per_second"), " on ", gain.row.photos()];
    }
    let more = more + "." + first.better_alone();
    let answer = text![&first.times, " the baseline"];
    Some(KeyResult { question: "What all improvements gave", answer, more })
}

fn projection(run: &RunTables) -> Option<KeyResult> {
    let row = run.table("extrapolation.csv")?.rows().next()?;
    let low = row.number("hours_low");
    let high = row.number("hours_high");
    let target = row.number("target_images");
    let more = text![low, " to ", high, " for ", target, " ", row.photos(), "."];
    Some(KeyResult { question: "How long many images take", answer: row.number("hours")?.into(), more })
}
