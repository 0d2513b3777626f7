use super::plate::{Plate, most};
use crate::chart::{BarPart, Bars, ChartBar, FlowChart, Panel, Station};
use crate::svg::Ink;
use crate::table::{CsvTable, TableRow, group};
use crate::text::{Num, Text, text};

/// The columns that the rows of one job have in common.
const JOB: [&str; 10] =
    ["photos", "mode", "decoder", "resizer", "encoder", "dtype", "decode_scale", "workers", "threads", "batch"];

/// Returns the serial jobs' rows.
pub(super) fn serial(table: &CsvTable) -> Vec<Vec<TableRow<'_>>> {
    group(table.rows().filter(|row| row.is("mode", "serial")), &JOB)
}

/// Returns the stage that takes most of a job's time.
pub(super) fn greatest<'a>(job: &[TableRow<'a>]) -> Option<(TableRow<'a>, Num)> {
    most(job.iter().copied().filter(|row| !row.is("stage", "other")), "share_of_wall")
}

pub(super) fn stages(table: &CsvTable) -> Option<Plate> {
    let mut panels = Vec::new();
    for rows in table.grouped(&["photos"]) {
        let several =
            ["encoder", "dtype"].iter().any(|column| rows.iter().any(|row| !row.is(column, rows[0].text(column))));
        let bars = group(rows.iter().copied(), &JOB).iter().map(|job| bar(job, several)).collect();
        panels.push(Panel { heading: rows[0].word("photos"), bars });
    }
    let title = match serial(table).first().and_then(|job| greatest(job)) {
        Some((row, share)) => {
            let (first, rest) = row.text("stage").split_at_checked(1).unwrap_or_default();
            text![first.to_uppercase() + rest, " takes ", share, " of a serial job on ", row.photos()]
        }
        None => "Time per image, stage by stage".into(),
    };
    let spent = table.rows().filter(|row| row.number("ms_per_image").is_some_and(|ms| ms.value > 0.0));
    let names = group(spent, &["stage"]).into_iter().map(|rows| rows[0].text("stage"));
    let keys = names.map(|stage| (Ink::of_stage(stage), stage.into())).collect();
    Plate::new(title, Text::default(), Bars { keys, axis: "milliseconds per image", one_scale: true, panels })
}

fn bar(job: &[TableRow<'_>], several_encoders: bool) -> ChartBar {
    let first = job[0];
    let mut label = text![first.word("decoder"), " + ", first.word("resizer")];
    if !["", "exact"].contains(&first.text("decode_scale")) {
        label = label + ", " + first.word("decode_scale");
    }
    if several_encoders {
        label = label + ", " + first.word("encoder") + " " + first.word("dtype");
    }
    label = match first.number("workers").filter(|_| first.is("mode", "threaded")) {
        Some(workers) => {
            let one = workers.value == 1.0;
            text![label, ", ", workers, if one { " worker" } else { " workers" }]
        }
        None => label + ", serial",
    };
    let mut parts = Vec::new();
    for row in job {
        let stage = row.text("stage");
        if let Some(size) = row.number("ms_per_image").filter(|size| size.value > 0.0) {
            parts.push(BarPart { name: stage.to_owned(), size, ink: Ink::of_stage(stage) });
        }
    }
    ChartBar { label, parts, value: first.number("images_per_second").into(), ..ChartBar::default() }
}

pub(super) fn pipeline(table: &CsvTable) -> Option<Plate> {
    let job = serial(table).into_iter().next()?;
    let mut stations = Vec::new();
    for row in job.iter().filter(|row| !row.is("stage", "other")) {
        if let Some((share, detail)) = row.number("share_of_wall").zip(row.number("ms_per_image")) {
            let name = row.text("stage").to_owned();
            stations.push(Station { ink: Ink::of_stage(&name), name, share, detail });
        }
    }
    let (first, _) = greatest(&job)?;
    let rest: Vec<TableRow<'_>> = job.iter().copied().filter(|row| !row.is("stage", first.text("stage"))).collect();
    let title = match greatest(&rest) {
        Some((next, share)) => text!["After ", first.text("stage"), ", ", next.text("stage"), " weighs most: ", share],
        None => "What an image goes through".into(),
    };
    let [photos, decoder, resizer, encoder, dtype] =
        ["photos", "decoder", "resizer", "encoder", "dtype"].map(|column| job[0].word(column));
    let more = text![" ", photos, " with ", decoder, ", ", resizer, " and ", encoder, " ", dtype, "."];
    Plate::new(title, more, FlowChart(stations))
}
