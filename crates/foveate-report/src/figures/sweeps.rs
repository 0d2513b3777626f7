use super::plate::{Plate, RATE, absent, bar, most, name, panels, sentence, simple, telling};
use crate::chart::{Bars, ChartBar, ChartLine, LineChart, Panel, Point};
use crate::svg::{FORWARD, Ink, OTHER, QUIET, READ};
use crate::table::{CsvTable, TableRow, group};
use crate::text::{Num, Text, text};

fn point(row: &TableRow<'_>, x: &'static str, y: &'static str) -> Option<Point> {
    Some(Point { x: row.number(x)?, y: row.number(y)?, band: None, note: "" })
}

/// Returns a line of points over `x`; none if there are no points.
fn line(rows: &[TableRow<'_>], x: &'static str, y: &'static str, name: Text, ink: Ink) -> Option<ChartLine> {
    let points: Vec<Point> = rows.iter().filter_map(|row| point(row, x, y)).collect();
    (!points.is_empty()).then_some(ChartLine { name, ink, on_second: false, is_assumed: false, points })
}

pub(super) fn storage(table: &CsvTable) -> Option<Plate> {
    let stores = group(table.rows().filter(|row| row.is("place", "store")), &["photos"]);
    let mut lines = Vec::new();
    for (at, mut rows) in stores.into_iter().enumerate() {
        rows.sort_by_key(|row| row.number("requests").map_or(0, |requests| requests.value as u64));
        lines.push(line(&rows, "requests", RATE[0], rows[0].photos(), Ink::of_series(2 * at))?);
        let fitted = rows[0].photos() + ", fitted";
        lines.extend(line(&rows, "requests", "fitted_images_per_second", fitted, Ink::of_series(2 * at + 1)));
    }
    lines.first()?;
    let rates = table.rows().filter(|row| row.is("place", "store"));
    let rates = rates.map(|row| (row, row.number(RATE[0]).map_or(0.0, |rate| rate.value)));
    let fastest = rates.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(row, _)| row);
    let title = match fastest {
        Some(row) => text![
            "With ",
            row.number("requests"),
            " requests in flight, the store delivers ",
            row.number(RATE[0]),
            "; each takes ",
            row.number("latency_ms"),
            " to its first byte"
        ],
        None => "What the store delivers, by requests in flight".into(),
    };
    Plate::new(title, Text::default(), LineChart { x: "requests in flight", y: "photos per second", second: "", lines })
}

/// Returns a line of rates over `x` for each of the `series`, with the name of the column `mark` where it says yes, and
/// the lines of the column `second` on the other axis, with a suffix to their names.
fn swept(
    table: &CsvTable,
    series: &[&'static str],
    x: &'static str,
    mark: &'static str,
    second: &'static str,
    suffix: fn(&TableRow<'_>) -> Text,
) -> Vec<ChartLine> {
    let columns = telling(&table.rows().collect::<Vec<_>>(), series);
    let ran = group(table.rows().filter(|row| row.not_run().is_none()), series);
    let mut lines = Vec::new();
    let mut seconds = Vec::new();
    for (at, rows) in ran.into_iter().enumerate() {
        let ink = Ink::of_series(at);
        let label = name(&rows[0], &columns);
        let is_assumed = rows[0].has_assumed_forward();
        let rates = line(&rows, x, RATE[0], label.clone(), ink);
        let mut rates = rates.map(|line| ChartLine { is_assumed, ..line });
        for (point, row) in rates.iter_mut().flat_map(|line| &mut line.points).zip(&rows) {
            point.band = row.number(RATE[1]).zip(row.number(RATE[2]));
            point.note = if row.is(mark, "yes") { mark } else { "" };
        }
        lines.extend(rates);
        let other = line(&rows, x, second, label + suffix(&rows[0]), ink);
        seconds.extend(other.map(|line| ChartLine { on_second: true, is_assumed, ..line }));
    }
    lines.into_iter().chain(seconds).collect()
}

/// Formats what a line's memory covers.
fn memory_of(row: &TableRow<'_>) -> Text {
    text![", memory of the ", row.word("memory_of")]
}

pub(super) fn batch(table: &CsvTable) -> Option<Plate> {
    const SERIES: [&str; 3] = ["encoder", "dtype", "threads"];
    let lines = swept(table, &SERIES, "batch", "knee", "peak_memory_mb", memory_of);
    lines.first()?;
    let columns = telling(&table.rows().collect::<Vec<_>>(), &SERIES);
    let title = match table.rows().find(|row| row.is("knee", "yes")) {
        Some(row) => {
            let batch = row.number("batch");
            let rate = row.number(RATE[0]);
            text!["A batch of ", batch, " is enough for ", name(&row, &columns), ": ", rate]
        }
        None => "Throughput by batch".into(),
    };
    let more = absent(table, &[&columns[..], &["batch"]].concat());
    let lines = LineChart { x: "batch", y: "images per second", second: "peak memory, MB", lines };
    Plate::new(title, more, lines)
}

pub(super) fn job_batch(table: &CsvTable) -> Option<Plate> {
    let lines = swept(table, &JOB, "batch", "plateau", "peak_memory_mb", memory_of);
    let lines = LineChart { x: "batch", y: "images per second", second: "peak memory, MB", lines };
    job_sweep(table, "Larger batches help on ", "Throughput of the job by batch", lines)
}

pub(super) fn workers(table: &CsvTable) -> Option<Plate> {
    let lines = swept(table, &JOB, "workers", "plateau", "encoder_busy", |_| ", encoder busy".into());
    let lines = LineChart { x: "workers", y: "images per second", second: "encoder busy", lines };
    job_sweep(table, "More workers help on ", "Throughput by workers", lines)
}

/// The columns of a job besides those that a sweep changes.
const JOB: [&str; 5] = ["photos", "decoder", "resizer", "encoder", "dtype"];

/// Draws a sweep of the whole job. The title tells the plateau of the first pair, which is the job's own.
fn job_sweep(table: &CsvTable, claim: &'static str, title: &'static str, lines: LineChart) -> Option<Plate> {
    lines.lines.first()?;
    let title = match table.rows().find(|row| row.is("plateau", "yes")) {
        Some(row) => {
            text![claim, row.photos(), " until ", row.word("limit"), " is the limit: ", row.number(RATE[0])]
        }
        None => title.into(),
    };
    let columns = telling(&table.rows().collect::<Vec<_>>(), &JOB);
    let more = absent(table, &[&columns[..], &[lines.x]].concat());
    Plate::new(title, more, lines)
}

/// The gain of all improvements on one set of photos.
pub(super) struct TotalGain<'a> {
    pub(super) row: TableRow<'a>,
    pub(super) times: Num,
    /// A single step that reached more, if one did.
    better: Option<(TableRow<'a>, Num)>,
}

impl TotalGain<'_> {
    /// Formats which single step reached more than all of them together, if one did.
    pub(super) fn better_alone(&self) -> Text {
        let better = self
            .better
            .iter()
            .map(|(row, times)| text![row.word("change"), ", reached more on ", row.photos(), ": ", times]);
        sentence(" A run with fewer of them, up to ", Text::join(better, ""))
    }
}

/// Returns what all improvements together gave for each set of photos.
pub(super) fn gains(table: &CsvTable) -> Vec<TotalGain<'_>> {
    table.grouped(&["photos"]).into_iter().filter_map(gain).collect()
}

fn gain(rows: Vec<TableRow<'_>>) -> Option<TotalGain<'_>> {
    // The ladder goes on from the step before one that lost.
    let steps = rows
        .into_iter()
        .filter(|row| !["preprocessing alone", "CPU only"].contains(&row.text("change")) && !row.is("effect", "loss"));
    let (row, times) = steps.clone().filter_map(|row| Some((row, row.number("times_baseline")?))).next_back()?;
    let better = most(steps, "times_baseline").filter(|(_, best)| best.value > times.value);
    Some(TotalGain { row, times, better })
}

/// Names a step by what it changed.
fn step(row: &TableRow<'_>) -> Text {
    let change = row.word("change");
    let to = match row.text("change") {
        _ if row.not_run().is_some() => return change,
        "decoder" => row.word("decoder"),
        "resizer" => row.word("resizer"),
        "smaller scale" => text!["decode_scale=", row.word("decode_scale")],
        "workers" | "all combined" => name(row, &["workers"]),
        "batch" => row.word("batch"),
        "encoder" => text![row.word("encoder"), " ", row.word("dtype")],
        _ => return change,
    };
    let drift = row.number("drift").filter(|drift| drift.value > 0.0).map(|drift| text![", drift ", drift]);
    text![change, ": ", to] + drift.unwrap_or_default()
}

pub(super) fn headline(table: &CsvTable) -> Option<Plate> {
    let panels = panels(table.grouped(&["photos"]), |row| {
        let ink = match row.text("change") {
            "baseline" => QUIET,
            "preprocessing alone" => OTHER,
            "CPU only" => READ,
            _ => FORWARD,
        };
        let loses = row.is("effect", "loss").then(|| text!["loses: ", row.number("times_previous")]);
        bar(row, step(row), RATE, ink).and(row.number("times_baseline")).and(loses)
    });
    let gains = gains(table);
    let titles = gains.iter().map(|TotalGain { row, times, .. }| text![times, " on ", row.photos()]);
    let title = match Text::join(titles, ", ") {
        none if none.is_empty() => "One improvement after the other".into(),
        gains => text!["All together: ", gains],
    };
    let keys = [(QUIET, "baseline"), (FORWARD, "improved"), (OTHER, "preprocessing alone"), (READ, "CPU only")];
    let bars = Bars::new("images per second", &keys, panels);
    let more = Text::join(gains.iter().map(TotalGain::better_alone), "");
    Plate::new(title, more, bars)
}

pub(super) fn extrapolation(table: &CsvTable) -> Option<Plate> {
    let first = table.rows().next()?;
    let mut panels = Vec::new();
    for row in table.rows() {
        let sample = text!["sample, ", row.number("images"), " images, ", row.number("samples"), " times"];
        let mut bars = vec![bar(&row, sample, [RATE[0], "low", "high"], QUIET)];
        if let Some(long) = row.number("long_images_per_second") {
            let within = if row.is("within", "yes") { ", within" } else { ", outside" };
            let label = text!["longer run, ", row.number("long_images"), " images"];
            bars.push(ChartBar { value: text![&long, within], ..simple(label, long, FORWARD) });
        }
        let target = row.number("target_images");
        let hours = row.number("hours");
        let low = row.number("hours_low");
        let high = row.number("hours_high");
        let heading = text![row.word("photos"), ": ", target, " images in ", hours, " (", low, " to ", high, ")"];
        panels.push(Panel { heading, bars });
    }
    let target = first.number("target_images");
    let hours = first.number("hours");
    let title = text![target, " images would take ", hours, ", going by a sample"];
    let bars = Bars::new("images per second", &[], panels);
    let more = sentence(" Takes for granted: ", first.word("assumptions"));
    Plate::new(title, more, bars)
}

/// Returns a row's number, by which others name it.
fn number(row: &TableRow<'_>) -> Option<Num> {
    let at = row.table.rows().position(|other| other.line() == row.line())?;
    Some(Num::derived((at + 1) as f64, "", "the row's number", &[row.number("times")?]))
}

pub(super) fn tuning(table: &CsvTable) -> Option<Plate> {
    let rows: Vec<TableRow<'_>> = table.rows().collect();
    let columns = telling(&rows, &["workers", "threads", "batch", "prefetch", "readers"]);
    let panels = panels(table.grouped(&["photos"]), |row| {
        let bold = row.is("chosen", "yes");
        let label = match row.number("beside") {
            Some(beside) => text![number(row), ": ", name(row, &columns), ", beside ", beside],
            None => text![number(row), ": ", name(row, &columns)],
        };
        let times = ["times", "times_low", "times_high"];
        let bar = bar(row, label, times, if bold { READ } else { QUIET });
        ChartBar { bold, ..bar.and(row.number(RATE[0])) }
    });
    let chosen = table.rows().find(|row| row.is("chosen", "yes"));
    let title = match chosen {
        Some(row) => text!["Tuning chose a setting that makes ", row.number(RATE[0])],
        None => "Configurations that tuning tried".into(),
    };
    let bars = Bars::new("times as fast as the configuration beside it", &[(QUIET, "tried"), (READ, "chosen")], panels);
    let more = chosen.map_or_else(Text::default, |row| sentence(" Why the chosen one: ", row.word("why")));
    Plate::new(title, more, bars)
}
