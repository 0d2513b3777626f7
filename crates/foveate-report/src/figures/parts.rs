use super::plate::{Plate, RATE, bar, least, most, name, panels, telling};
use crate::chart::{Bars, Panel};
use crate::svg::{DECODE, FORWARD, READ, RESIZE, SERIALIZE};
use crate::table::{CsvTable, TableRow};
use crate::text::{Num, Text, text};

/// The median, with a whisker up to the 90th percentile.
const TIME: [&str; 3] = ["p50_ms", "p50_ms", "p90_ms"];

/// The fastest and the slowest row by median, and the ratio of their times.
struct Extremes<'a> {
    fastest: TableRow<'a>,
    slowest: TableRow<'a>,
    times: Num,
}

/// Returns the extremes of some rows, if these differ.
fn extremes<'a>(rows: &[TableRow<'a>]) -> Option<Extremes<'a>> {
    let (fastest, quick) = least(rows.iter().copied(), "p50_ms")?;
    let (slowest, slow) = most(rows.iter().copied(), "p50_ms")?;
    let times = slow.over(&quick, "×")?;
    (times.value > 1.0).then_some(Extremes { fastest, slowest, times })
}

/// Formats "A does in half the time what B does", for the rows of the first set of photos with equal `alike`.
fn comparison(
    table: &CsvTable,
    alike: &'static str,
    column: &'static str,
    verb: &str,
    set: fn(TableRow<'_>) -> Text,
) -> Option<Text> {
    let rows = table.grouped(&["photos", alike]).into_iter().next()?;
    let Extremes { fastest, slowest, times } = extremes(&rows)?;
    Some(text![fastest.word(column), verb, times, " as fast as ", slowest.word(column), set(rows[0])])
}

pub(super) fn decoders(table: &CsvTable) -> Option<Plate> {
    let panels = panels(table.grouped(&["photos"]), |row| {
        let scale = row.word("decode_scale");
        let is_exact = row.is("decode_scale", "exact");
        let label = if is_exact { row.word("decoder") } else { text![row.word("decoder"), ", ", scale] };
        bar(row, label, TIME, DECODE.faint(!is_exact))
    });
    let title = comparison(table, "decode_scale", "decoder", " decodes ", |row| text![" on ", row.photos()]);
    let keys = [(DECODE, "full size"), (DECODE.faint(true), "reduced size: fast, low")];
    let bars = Bars::new("milliseconds per photo", &keys, panels);
    Plate::new(title.unwrap_or_else(|| "What decoding a photo costs".into()), Text::default(), bars)
}

pub(super) fn resizers(table: &CsvTable) -> Option<Plate> {
    let rows: Vec<TableRow<'_>> = table.rows().collect();
    let columns = telling(&rows, &["resizer", "recipe"]);
    let panels = panels(table.grouped(&["photos"]), |row| {
        bar(row, name(row, &columns), TIME, RESIZE.faint(row.is("recipe", "squash")))
    });
    let title = comparison(table, "recipe", "resizer", " resizes ", |row| {
        text![" (", row.photos(), ", ", row.word("recipe"), ")"]
    });
    let keys = [(RESIZE, "recipe hf"), (RESIZE.faint(true), "recipe squash")];
    let bars = Bars::new("milliseconds per photo", &keys, panels);
    Plate::new(title.unwrap_or_else(|| "What resizing a photo costs".into()), Text::default(), bars)
}

pub(super) fn forward(table: &CsvTable) -> Option<Plate> {
    let mut panels = Vec::new();
    for rows in table.grouped(&["batch"]) {
        let many = rows.iter().any(|row| !row.is("threads", rows[0].text("threads")));
        let columns = if many { &["encoder", "dtype", "threads"][..] } else { &["encoder", "dtype"] };
        let mut bars = Vec::new();
        for row in &rows {
            let ink = FORWARD.faint(!row.is("dtype", "f32"));
            bars.push(bar(row, name(row, columns), TIME, ink).and(row.number(RATE[0])));
        }
        panels.push(Panel { heading: text!["Batch ", rows[0].word("batch")], bars });
    }
    // Engines are compared in one precision.
    let title = table.grouped(&["batch", "dtype"]).iter().find_map(|rows| extremes(rows));
    let title = title.map(|Extremes { fastest, slowest, times }| {
        let fast = fastest.word("encoder");
        let slow = slowest.word("encoder");
        let [dtype, batch] = ["dtype", "batch"].map(|column| fastest.word(column));
        text![fast, " is ", times, " as fast as ", slow, " in ", dtype, " at batch ", batch]
    });
    let keys = [(FORWARD, "float, full length"), (FORWARD.faint(true), "shorter types")];
    let bars = Bars::new("milliseconds per batch", &keys, panels);
    Plate::new(title.unwrap_or_else(|| "What the forward of a batch costs".into()), Text::default(), bars)
}

/// Megabytes per second, without a whisker and with one.
const COPIED: [&str; 3] = ["mb_per_second", "", ""];
const READ_AT: [&str; 3] = ["mb_per_second", "mb_per_second_min", "mb_per_second_max"];

pub(super) fn copies(table: &CsvTable) -> Option<Plate> {
    let bars = table.rows().map(|row| bar(&row, name(&row, &["from", "dtype"]), COPIED, FORWARD));
    let panels = vec![Panel { heading: Text::default(), bars: bars.collect() }];
    let bars = Bars::new("megabytes per second", &[], panels);
    Plate::new("What a batch costs on its way to the network".into(), Text::default(), bars)
}

pub(super) fn read(table: &CsvTable) -> Option<Plate> {
    let bars = table.rows().map(|row| {
        let label = text![row.number("chunk_bytes"), ", ", name(&row, &["requests"])];
        bar(&row, label, READ_AT, READ)
    });
    let panels = vec![Panel { heading: Text::default(), bars: bars.collect() }];
    let bars = Bars::new("megabytes per second", &[], panels);
    Plate::new("What a file or an object delivers in pieces".into(), Text::default(), bars)
}

pub(super) fn sinks(table: &CsvTable) -> Option<Plate> {
    const COLUMNS: [&str; 2] = ["sink", "variant"];
    const RATE: [&str; 3] = ["rows_per_second", "rows_per_second_min", "rows_per_second_max"];
    let bars = table.rows().map(|row| {
        let bytes = row.number("bytes_per_row").map(|bytes| text![bytes, " per row"]);
        bar(&row, name(&row, &COLUMNS), RATE, SERIALIZE).and(bytes)
    });
    let panels = vec![Panel { heading: Text::default(), bars: bars.collect() }];
    let title = match (most(table.rows(), RATE[0]), least(table.rows(), RATE[0])) {
        (Some((_, most)), Some((slowest, rate))) if rate.value < most.value => {
            text!["Even ", name(&slowest, &COLUMNS), ", the slowest output, takes ", rate]
        }
        _ => "How fast outputs take vectors".into(),
    };
    let first = table.rows().next()?;
    let more = text![" ", first.number("rows"), " vectors of ", first.number("dim"), " numbers each."];
    let bars = Bars::new("rows per second", &[], panels);
    Plate::new(title, more, bars)
}
