use super::plate::{Plate, Plates, both, key, least, not_run, whiskered};
use crate::ReportError;
use crate::chart::{Bar, Bars, Chart, Panel};
use crate::ink::{FORWARD, QUIET};
use crate::run::Run;
use crate::shown::{Num, Text, text};
use crate::table::{Row, Table};

/// Draws the worker's configurations, one panel per encoder.
pub(crate) fn configurations(run: &Run) -> Plates {
    let Some(table) = run.table("worker.csv") else { return Ok(None) };
    let mut panels = Vec::new();
    for rows in table.grouped("encoder") {
        let bars = rows.iter().map(bar).collect::<Result<_, _>>()?;
        panels.push(Panel { heading: encoder(&rows[0]), bars });
    }
    let gains = best(table).into_iter().map(|(row, times)| text![times, " with ", row.word("encoder")]);
    let title = match Text::join(gains, ", ") {
        none if none.is_empty() => "A worker's stages in turn and side by side".into(),
        gains => text!["A worker's stages side by side: ", gains],
    };
    let latency = table.rows().find_map(|row| Some((row.number("photo_p50_ms")?, row.number("photo_p99_ms")?)));
    let latency = match latency {
        Some((median, tail)) => {
            text![" Photos come after ", median, " (median; all but a hundredth within ", tail, ")."]
        }
        None => Text::default(),
    };
    Ok(Some(Plate {
        name: "worker",
        title,
        caption: text![
            "The queue worker with more and more of its stages on threads of their own, each line added to those above \
             it; the whisker goes from the slowest to the fastest sample, the factor is that of everything in turn. Where \
             the forward runs on the same cores as the rest, threads win back the time that was spent waiting for the \
             network and no more; the stub sleeps as if a device did the work, so that the cores are left to the rest.",
            latency
        ],
        description: "Bars: requests a second of the worker in four configurations, for each encoder.",
        note: Text::default(),
        chart: Chart::Bars(Bars {
            keys: vec![key(QUIET, "everything in turn"), key(FORWARD, "stages side by side")],
            axis: "requests per second",
            one_scale: false,
            panels,
        }),
    }))
}

/// Returns the best configuration with each encoder.
fn best(table: &Table) -> Vec<(Row<'_>, Num)> {
    let best = |rows: Vec<_>| {
        let times = rows.into_iter().filter_map(|row: Row<'_>| Some((row, row.number("times_first")?)));
        least(times, |(_, times)| -times.value)
    };
    table.grouped("encoder").into_iter().filter_map(best).collect()
}

/// Returns the name of the encoder.
fn encoder(row: &Row<'_>) -> Text {
    let name = row.word("encoder");
    match row.number("forward_sleep_ms") {
        Some(sleep) => text![name, ", which sleeps ", sleep, " a batch"],
        None => name,
    }
}

fn bar(row: &Row<'_>) -> Result<Bar, ReportError> {
    if let Some(why) = row.not_run() {
        return Ok(not_run(row.word("change"), why));
    }
    let rate = row.need("requests_per_second")?;
    let ends = both(row, "requests_per_second_min", "requests_per_second_max");
    let value = match row.number("times_first") {
        Some(times) => text![&rate, " · ", times],
        None => (&rate).into(),
    };
    let is_first = row.number("configuration").is_some_and(|number| number.value == 1.0);
    Ok(whiskered(row.word("change"), rate, ends, (if is_first { QUIET } else { FORWARD }, false), value))
}

/// Columns of the table of configurations: heading, and column of the file.
pub(crate) const COLUMNS: [(&str, &str); 8] = [
    ("Rate", "requests_per_second"),
    ("Gain", "times_first"),
    ("Latency, median", "p50_ms"),
    ("Latency, p99", "p99_ms"),
    ("Images a batch", "images_per_batch"),
    ("Encoder busy", "encoder_busy"),
    ("Cores busy", "cpu_busy"),
    ("Memory grew by", "memory_growth_mb"),
];

/// Returns the rows of the table: name and values of each configuration that ran.
pub(crate) fn rows(run: &Run) -> Vec<(Text, Vec<Text>)> {
    let Some(table) = run.table("worker.csv") else { return Vec::new() };
    let ran = table.rows().filter(|row| row.not_run().is_none());
    let values = |row: &Row<'_>| COLUMNS.iter().map(|(_, column)| row.number(column).into()).collect();
    ran.map(|row| (text![row.word("encoder"), ": ", row.word("change")], values(&row))).collect()
}
