use super::plate::{Plate, bar, most};
use crate::chart::{Bars, Panel};
use crate::svg::{FORWARD, QUIET};
use crate::table::CsvTable;
use crate::text::{Text, text};

const RATE: [&str; 3] = ["requests_per_second", "requests_per_second_min", "requests_per_second_max"];

/// Draws the worker's configurations, one panel per encoder.
pub(super) fn configurations(table: &CsvTable) -> Option<Plate> {
    let encoders = table.grouped(&["encoder"]);
    let mut panels = Vec::new();
    for rows in &encoders {
        let [sleep, each] = ["forward_sleep_ms", "forward_sleep_per_image_ms"].map(|column| rows[0].number(column));
        let each = each.map_or_else(Text::default, |each| text![" and ", each, " an image"]);
        let sleep = sleep.map(|sleep| text![", which sleeps ", sleep, " a batch", each]);
        let mut bars = Vec::new();
        for row in rows {
            let ink = if row.is("configuration", "1") { QUIET } else { FORWARD };
            bars.push(bar(row, row.word("change"), RATE, ink).and(row.number("times_first")));
        }
        panels.push(Panel { heading: rows[0].word("encoder") + sleep.unwrap_or_default(), bars });
    }
    let gains = encoders.iter().filter_map(|rows| most(rows.iter().copied(), "times_first"));
    let gains = gains.map(|(row, times)| text![times, " with ", row.word("encoder")]);
    let title = match Text::join(gains, ", ") {
        none if none.is_empty() => "A worker's stages in turn and side by side".into(),
        gains => text!["A worker's stages side by side: ", gains],
    };
    let latency = table.rows().find_map(|row| row.number("photo_p50_ms").zip(row.number("photo_p99_ms")));
    let more = latency.map_or_else(Text::default, |(median, tail)| {
        text![" Photos come after ", median, " (median; all but a hundredth within ", tail, ")."]
    });
    let keys = [(QUIET, "everything in turn"), (FORWARD, "stages side by side")];
    let bars = Bars::new("requests per second", &keys, panels);
    Plate::new(title, more, bars)
}
