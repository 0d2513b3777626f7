use super::plate::{Plate, Plates, key, least};
use crate::chart::{Bar, Bars, Chart, Flow, Panel, Part, Station};
use crate::ink::Ink;
use crate::run::Run;
use crate::shown::{Num, Text, text};
use crate::table::{Row, group};

/// Rows of one job.
type JobRows<'a> = Vec<Row<'a>>;

fn jobs<'a>(rows: impl IntoIterator<Item = Row<'a>>) -> Vec<JobRows<'a>> {
    const JOB: [&str; 10] =
        ["photos", "mode", "decoder", "resizer", "encoder", "dtype", "decode_scale", "workers", "threads", "batch"];
    group(rows, |row| JOB.map(|column| row.text(column).to_owned()))
}

/// Returns the stage that takes most of a job's time.
fn greatest<'a>(job: &[Row<'a>]) -> Option<(Row<'a>, Num)> {
    let shares = job.iter().filter_map(|row| Some((*row, row.number("share_of_wall")?)));
    least(shares.filter(|(row, _)| !row.is("stage", "other")), |(_, share)| -share.value)
}

/// Returns the stage that takes most of the first serial job's time.
pub(crate) fn most(run: &Run) -> Option<(Row<'_>, Num)> {
    let rows = run.table("profile.csv")?.rows();
    greatest(jobs(rows.filter(|row| row.is("mode", "serial"))).first()?)
}

pub(crate) fn stages(run: &Run) -> Plates {
    let Some(table) = run.table("profile.csv") else { return Ok(None) };
    let mut panels = Vec::new();
    for rows in table.grouped("photos") {
        let heading = rows[0].word("photos");
        let jobs = jobs(rows);
        let several_encoders = jobs
            .iter()
            .any(|job| ["encoder", "dtype"].iter().any(|column| job[0].text(column) != jobs[0][0].text(column)));
        let bars = jobs.iter().map(|job| bar(job, several_encoders)).collect::<Result<Vec<_>, _>>()?;
        panels.push(Panel { heading, bars });
    }
    let mut names: Vec<&str> = Vec::new();
    for row in table.rows().filter(|row| row.number("ms_per_image").is_some_and(|ms| ms.value > 0.0)) {
        if !names.contains(&row.text("stage")) {
            names.push(row.text("stage"));
        }
    }
    let title = match most(run) {
        Some((row, share)) => {
            text![capital(row.text("stage")), " takes ", share, " of a serial job on ", row.photos()]
        }
        None => "Time per image, stage by stage".into(),
    };
    Ok(Some(Plate {
        name: "stages",
        title,
        caption: "Time per image by stage. In a serial job every stage runs in turn on one thread, so that the bar is \
                  what an image costs; with workers the stages run side by side, and the bar is their times added up \
                  over all threads: compare its rate, not its length."
            .into(),
        description: "Stacked bars: milliseconds an image spends in each stage, for every job that was profiled.",
        note: Text::default(),
        chart: Chart::Bars(Bars {
            keys: names.into_iter().map(|stage| key(Ink::of_stage(stage), stage)).collect(),
            axis: "milliseconds per image",
            one_scale: true,
            panels,
        }),
    }))
}

fn bar(job: &JobRows<'_>, several_encoders: bool) -> Result<Bar, crate::ReportError> {
    let first = job[0];
    let mut label = text![first.word("decoder"), " + ", first.word("resizer")];
    if first.is("decode_scale", "fast") {
        label = label + ", fast";
    }
    if several_encoders {
        label = label + ", " + first.word("encoder") + " " + first.word("dtype");
    }
    label = match first.number("workers") {
        Some(workers) if first.is("mode", "threaded") && workers.value == 1.0 => label + ", " + workers + " worker",
        Some(workers) if first.is("mode", "threaded") => label + ", " + workers + " workers",
        _ => label + ", serial",
    };
    let mut parts = Vec::new();
    for row in job {
        let size = row.need("ms_per_image")?;
        if size.value > 0.0 {
            parts.push(Part {
                name: row.text("stage").to_owned(),
                size,
                ink: Ink::of_stage(row.text("stage")),
                faint: false,
            });
        }
    }
    let value = Text::from(first.number("images_per_second"));
    Ok(Bar { label, parts, whisker: None, value, bold: false })
}

pub(crate) fn pipeline(run: &Run) -> Plates {
    let Some(table) = run.table("profile.csv") else { return Ok(None) };
    let serial = jobs(table.rows().filter(|row| row.is("mode", "serial")));
    let Some(job) = serial.first() else { return Ok(None) };
    let mut stations = Vec::new();
    for row in job.iter().filter(|row| !row.is("stage", "other")) {
        stations.push(Station {
            name: row.text("stage").to_owned(),
            share: row.need("share_of_wall")?,
            detail: row.need("ms_per_image")?.into(),
            ink: Ink::of_stage(row.text("stage")),
        });
    }
    let rest: JobRows<'_> = match greatest(job) {
        Some((most, _)) => job.iter().copied().filter(|row| !row.is("stage", most.text("stage"))).collect(),
        None => Vec::new(),
    };
    let title = match greatest(job).zip(greatest(&rest)) {
        Some(((most, _), (next, share))) => {
            text!["After ", most.text("stage"), ", ", next.text("stage"), " weighs most: ", share]
        }
        None => "What an image goes through".into(),
    };
    let pair = text![
        job[0].word("decoder"),
        ", ",
        job[0].word("resizer"),
        " and ",
        job[0].word("encoder"),
        " ",
        job[0].word("dtype")
    ];
    Ok(Some(Plate {
        name: "pipeline",
        title,
        caption: text![
            "What an image goes through, from left to right, and the share of a serial job's time in each stage, \
             with the time per image: ",
            job[0].word("photos"),
            " with ",
            pair,
            "."
        ],
        description: "Boxes joined by arrows: the stages of the pipeline in order, each filled as far as its share of the time.",
        note: Text::default(),
        chart: Chart::Flow(Flow { stations }),
    }))
}

/// Capitalizes `word`.
fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
