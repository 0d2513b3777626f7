use super::plate::{Plate, RATE, absent, bar, most, name, panels, sentence, simple, telling};
use crate::chart::{Bar, Bars, Line, Lines, Panel, Point};
use crate::svg::{FORWARD, Ink, OTHER, QUIET, READ};
use crate::table::{Row, Table, group};
use crate::text::{Num, Text, text};

fn point(row: &Row<'_>, x: &'static str, y: &'static str) -> Option<Point> {
    Some(Point { x: row.number(x)?, y: row.number(y)?, band: None, note: "" })
}

/// Returns a line of points over `x`; none if there are no points.
fn line(rows: &[Row<'_>], (x, y): (&'static str, &'static str), name: Text, ink: Ink) -> Option<Line> {
    let points: Vec<Point> = rows.iter().filter_map(|row| point(row, x, y)).collect();
    (!points.is_empty()).then_some(Line { name, ink, on_second: false, is_assumed: false, points })
}

pub(super) fn storage(table: &Table) -> Option<Plate> {
    let stores = group(table.rows().filter(|row| row.is("place", "store")), &["photos"]);
    let mut lines = Vec::new();
    for (at, mut rows) in stores.into_iter().enumerate() {
        rows.sort_by_key(|row| row.number("requests").map_or(0, |requests| requests.value as u64));
        let measured = line(&rows, ("requests", RATE[0]), rows[0].photos(), Ink::of_series(2 * at))?;
        let fitted = rows[0].photos() + ", fitted";
        let fitted = line(&rows, ("requests", "fitted_images_per_second"), fitted, Ink::of_series(2 * at + 1));
        lines.extend([Some(measured), fitted].into_iter().flatten());
    }
    lines.first()?;
    let rate = |row: &Row<'_>| row.number(RATE[0]).map_or(0.0, |rate| rate.value);
    let fastest = table.rows().filter(|row| row.is("place", "store")).max_by(|a, b| rate(a).total_cmp(&rate(b)));
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
    Plate::new(title, Text::default(), Lines { x: "requests in flight", y: "photos per second", second: "", lines })
}

/// Returns a line of rates over `x` for each of the `series`, which `mark` notes where its column says yes, and the
/// lines of `second` on the other axis.
fn swept(
    table: &Table,
    series: &[&'static str],
    x: &'static str,
    (mark, note): (&'static str, &'static str),
    (second, suffix): (&'static str, fn(&Row<'_>) -> Text),
) -> Vec<Line> {
    let columns = telling(&table.rows().collect::<Vec<_>>(), series);
    let ran = group(table.rows().filter(|row| row.not_run().is_none()), series);
    let (mut lines, mut seconds) = (Vec::new(), Vec::new());
    for (at, rows) in ran.into_iter().enumerate() {
        let (ink, label) = (Ink::of_series(at), name(&rows[0], &columns));
        let is_assumed = rows[0].has_assumed_forward();
        let rates = line(&rows, (x, RATE[0]), label.clone(), ink);
        let mut rates = rates.map(|line| Line { is_assumed, ..line });
        for (point, row) in rates.iter_mut().flat_map(|line| &mut line.points).zip(&rows) {
            point.band = row.number(RATE[1]).zip(row.number(RATE[2]));
            point.note = if row.is(mark, "yes") { note } else { "" };
        }
        lines.extend(rates);
        let other = line(&rows, (x, second), label + suffix(&rows[0]), ink);
        seconds.extend(other.map(|line| Line { on_second: true, is_assumed, ..line }));
    }
    lines.into_iter().chain(seconds).collect()
}

pub(super) fn batch(table: &Table) -> Option<Plate> {
    const SERIES: [&str; 3] = ["encoder", "dtype", "threads"];
    let memory = |row: &Row<'_>| text![", memory of the ", row.word("memory_of")];
    let lines = swept(table, &SERIES, "batch", ("knee", "knee"), ("peak_memory_mb", memory));
    lines.first()?;
    let columns = telling(&table.rows().collect::<Vec<_>>(), &SERIES);
    let title = match table.rows().find(|row| row.is("knee", "yes")) {
        Some(row) => {
            let (batch, rate) = (row.number("batch"), row.number(RATE[0]));
            text!["A batch of ", batch, " is enough for ", name(&row, &columns), ": ", rate]
        }
        None => "Throughput by batch".into(),
    };
    let more = absent(table, &[&columns[..], &["batch"]].concat());
    let lines = Lines { x: "batch", y: "images per second", second: "peak memory, MB", lines };
    Plate::new(title, more, lines)
}

pub(super) fn job_batch(table: &Table) -> Option<Plate> {
    let memory = |row: &Row<'_>| text![", memory of the ", row.word("memory_of")];
    let lines = swept(table, &JOB, "batch", ("plateau", "plateau"), ("peak_memory_mb", memory));
    let lines = Lines { x: "batch", y: "images per second", second: "peak memory, MB", lines };
    job_sweep(table, "Larger batches help on ", "Throughput of the job by batch", lines)
}

pub(super) fn workers(table: &Table) -> Option<Plate> {
    let busy = |_: &Row<'_>| ", encoder busy".into();
    let lines = swept(table, &JOB, "workers", ("plateau", "plateau"), ("encoder_busy", busy));
    let lines = Lines { x: "workers", y: "images per second", second: "encoder busy", lines };
    job_sweep(table, "More workers help on ", "Throughput by workers", lines)
}

/// The columns of a job besides those that a sweep changes.
const JOB: [&str; 5] = ["photos", "decoder", "resizer", "encoder", "dtype"];

/// Draws a sweep of the whole job. The title tells the plateau of the first pair, which is the job's own.
fn job_sweep(table: &Table, claim: &'static str, title: &'static str, lines: Lines) -> Option<Plate> {
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

/// What all improvements gave on one set of photos.
pub(super) struct Gain<'a> {
    pub(super) row: Row<'a>,
    pub(super) times: Num,
    /// A single step that reached more, if one did.
    better: Option<(Row<'a>, Num)>,
}

impl Gain<'_> {
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
pub(super) fn gains(table: &Table) -> Vec<Gain<'_>> {
    table.grouped(&["photos"]).into_iter().filter_map(gain).collect()
}

fn gain(rows: Vec<Row<'_>>) -> Option<Gain<'_>> {
    let is_step = |row: &Row<'_>| !["preprocessing alone", "CPU only"].contains(&row.text("change"));
    // The ladder goes on from the step before one that lost.
    let steps = rows.into_iter().filter(is_step).filter(|row| !row.is("effect", "loss"));
    let (row, times) = steps.clone().filter_map(|row| Some((row, row.number("times_baseline")?))).next_back()?;
    let better = most(steps, "times_baseline").filter(|(_, best)| best.value > times.value);
    Some(Gain { row, times, better })
}

/// Names a step by what it changed.
fn step(row: &Row<'_>) -> Text {
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

pub(super) fn headline(table: &Table) -> Option<Plate> {
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
    let titles = gains.iter().map(|Gain { row, times, .. }| text![times, " on ", row.photos()]);
    let title = match Text::join(titles, ", ") {
        none if none.is_empty() => "One improvement after the other".into(),
        gains => text!["All together: ", gains],
    };
    let keys = [(QUIET, "baseline"), (FORWARD, "improved"), (OTHER, "preprocessing alone"), (READ, "CPU only")];
    let bars = Bars::new("images per second", &keys, panels);
    let more = Text::join(gains.iter().map(Gain::better_alone), "");
    Plate::new(title, more, bars)
}

pub(super) fn extrapolation(table: &Table) -> Option<Plate> {
    let panel = |row: Row<'_>| {
        let sample = text!["sample, ", row.number("images"), " images, ", row.number("samples"), " times"];
        let mut bars = vec![bar(&row, sample, [RATE[0], "low", "high"], QUIET)];
        if let Some(long) = row.number("long_images_per_second") {
            let within = if row.is("within", "yes") { ", within" } else { ", outside" };
            let label = text!["longer run, ", row.number("long_images"), " images"];
            bars.push(Bar { value: text![&long, within], ..simple(label, long, FORWARD) });
        }
        let (target, hours) = (row.number("target_images"), row.number("hours"));
        let (low, high) = (row.number("hours_low"), row.number("hours_high"));
        let heading = text![row.word("photos"), ": ", target, " images in ", hours, " (", low, " to ", high, ")"];
        Panel { heading, bars }
    };
    let first = table.rows().next()?;
    let (target, hours) = (first.number("target_images"), first.number("hours"));
    let title = text![target, " images would take ", hours, ", going by a sample"];
    let bars = Bars::new("images per second", &[], table.rows().map(panel).collect());
    let more = sentence(" Takes for granted: ", first.word("assumptions"));
    Plate::new(title, more, bars)
}

/// Returns a row's number, by which others name it.
fn number(row: &Row<'_>) -> Option<Num> {
    let at = row.table.rows().position(|other| other.line() == row.line())?;
    Some(Num::derived((at + 1) as f64, "", "the row's number", &[row.number("times")?]))
}

pub(super) fn tuning(table: &Table) -> Option<Plate> {
    let rows: Vec<Row<'_>> = table.rows().collect();
    let columns = telling(&rows, &["workers", "threads", "batch", "prefetch", "readers"]);
    let panels = panels(table.grouped(&["photos"]), |row| {
        let bold = row.is("chosen", "yes");
        let label = match row.number("beside") {
            Some(beside) => text![number(row), ": ", name(row, &columns), ", beside ", beside],
            None => text![number(row), ": ", name(row, &columns)],
        };
        let times = ["times", "times_low", "times_high"];
        let bar = bar(row, label, times, if bold { READ } else { QUIET });
        Bar { bold, ..bar.and(row.number(RATE[0])) }
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
