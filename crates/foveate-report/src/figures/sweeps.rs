use super::plate::{Plate, Plates, absent, both, key, least, name, not_run, telling, whiskered};
use crate::ReportError;
use crate::chart::{Bar, Bars, Chart, Line, Lines, Panel, Point};
use crate::ink::{FORWARD, Ink, OTHER, QUIET, READ};
use crate::run::Run;
use crate::shown::{Num, Text, text};
use crate::table::{Row, Table, group};

fn rated(row: &Row<'_>, x: &'static str, note: Text) -> Result<Point, ReportError> {
    let band = both(row, "images_per_second_min", "images_per_second_max");
    Ok(Point { x: row.need(x)?, y: row.need("images_per_second")?, band, note })
}

/// Groups the rows that ran into series with equal `columns`.
fn series<'a>(rows: impl IntoIterator<Item = Row<'a>>, columns: &[&'static str]) -> Vec<Vec<Row<'a>>> {
    let ran = rows.into_iter().filter(|row| row.not_run().is_none());
    group(ran, |row| columns.iter().map(|column| row.text(column).to_owned()).collect::<Vec<_>>())
}

pub(crate) fn storage(run: &Run) -> Plates {
    let Some(table) = run.table("storage.csv") else { return Ok(None) };
    let (mut lines, mut found) = (Vec::new(), None);
    let stores = group(table.rows().filter(|row| row.is("place", "store")), |row| row.text("photos").to_owned());
    for (at, mut rows) in stores.into_iter().enumerate() {
        rows.sort_by_key(|row| row.number("requests").map_or(0, |requests| requests.value as u64));
        for (column, ink, label) in [
            ("images_per_second", Ink::of_series(2 * at), ""),
            ("fitted_images_per_second", Ink::of_series(2 * at + 1), ", fitted"),
        ] {
            let mut points = Vec::new();
            for row in &rows {
                let is_found = column == "images_per_second" && row.is("found", "yes");
                let note = if is_found { "found by the job".into() } else { Text::default() };
                points.push(Point { x: row.need("requests")?, y: row.need(column)?, band: None, note });
                found = found.or_else(|| is_found.then_some(*row));
            }
            lines.push(Line { name: text![rows[0].photos(), label], ink, on_second: false, points });
        }
    }
    if lines.is_empty() {
        return Ok(None);
    }
    let title = match found {
        Some(row) => text![
            "With ",
            row.number("requests"),
            " requests in flight, the store delivers ",
            row.number("images_per_second"),
            "; each takes ",
            row.number("latency_ms"),
            " to its first byte"
        ],
        None => "What the store delivers, by requests in flight".into(),
    };
    Ok(Some(Plate {
        name: "storage",
        title,
        caption:
            "The store alone, with nothing but reading. By Little's law the rate is the requests in flight, divided by \
                  the seconds of each, up to what the store gives all of them together. The job finds its number by \
                  measurement."
                .into(),
        description: "Lines: photos a second that the store delivers by the number of requests in flight, measured and fitted; the number that the job finds is marked.",
        note: Text::default(),
        chart: Chart::Lines(Lines { x: "requests in flight", y: "photos per second", second: None, lines }),
    }))
}

pub(crate) fn batch(run: &Run) -> Plates {
    let Some(table) = run.table("batch_sweep.csv") else { return Ok(None) };
    let all: Vec<Row<'_>> = table.rows().collect();
    let columns = telling(&all, &["encoder", "dtype", "threads"]);
    let (mut lines, mut memory, mut knee) = (Vec::new(), Vec::new(), None);
    for (at, rows) in series(all.iter().copied(), &["encoder", "dtype", "threads"]).into_iter().enumerate() {
        let (ink, label) = (Ink::of_series(at), name(&rows[0], &columns));
        let mut points = Vec::new();
        for row in &rows {
            let is_knee = row.is("knee", "yes");
            points.push(rated(row, "batch", if is_knee { "knee".into() } else { Text::default() })?);
            knee = knee.or_else(|| is_knee.then_some(*row));
        }
        lines.push(Line { name: label.clone(), ink, on_second: false, points });
        let used = rows.iter().filter_map(|row| Some((row.number("batch")?, row.number("peak_memory_mb")?)));
        let points: Vec<Point> = used.map(|(x, y)| Point { x, y, band: None, note: Text::default() }).collect();
        if !points.is_empty() {
            let name = label + ", memory of the " + rows[0].word("memory_of");
            memory.push(Line { name, ink, on_second: true, points });
        }
    }
    if lines.is_empty() {
        return Ok(None);
    }
    let title = match knee {
        Some(row) => text![
            "A batch of ",
            row.number("batch"),
            " is enough for ",
            name(&row, &columns),
            ": ",
            row.number("images_per_second")
        ],
        None => "Throughput by batch".into(),
    };
    let second = (!memory.is_empty()).then_some("peak memory, MB");
    lines.extend(memory);
    Ok(Some(Plate {
        name: "batch_sweep",
        title,
        caption: text![
            "The encoder alone at growing batches. Full dots: throughput, the band from the slowest to the fastest \
                  sample. Rings: the most memory in use, on the right axis. The knee is the smallest batch within a \
                  twentieth of the best throughput: a larger one costs memory and gives next to nothing.",
            absent(all.iter().copied(), &columns_and(&columns, "batch"))
        ],
        description: "Lines: images a second by batch size, with peak memory on a second axis; the knee is marked.",
        note: Text::default(),
        chart: Chart::Lines(Lines { x: "batch", y: "images per second", second, lines }),
    }))
}

pub(crate) fn workers(run: &Run) -> Plates {
    const SERIES: [&str; 5] = ["photos", "decoder", "resizer", "encoder", "dtype"];
    let Some(table) = run.table("worker_sweep.csv") else { return Ok(None) };
    let all: Vec<Row<'_>> = table.rows().collect();
    let columns = telling(&all, &SERIES);
    let (mut lines, mut busy, mut plateau) = (Vec::new(), Vec::new(), None);
    for (at, rows) in series(all.iter().copied(), &SERIES).into_iter().enumerate() {
        let (ink, label) = (Ink::of_series(at), name(&rows[0], &columns));
        let mut points = Vec::new();
        for row in &rows {
            let is_plateau = row.is("plateau", "yes");
            points.push(rated(row, "workers", if is_plateau { "plateau".into() } else { Text::default() })?);
            plateau = plateau.or_else(|| is_plateau.then_some(*row));
        }
        lines.push(Line { name: label.clone(), ink, on_second: false, points });
        let shares = rows.iter().filter_map(|row| Some((row.number("workers")?, row.number("encoder_busy")?)));
        let points: Vec<Point> = shares.map(|(x, y)| Point { x, y, band: None, note: Text::default() }).collect();
        if !points.is_empty() {
            busy.push(Line { name: label + ", encoder busy", ink, on_second: true, points });
        }
    }
    if lines.is_empty() {
        return Ok(None);
    }
    let title = match plateau {
        Some(row) => text![
            "The plateau on ",
            row.photos(),
            " begins at ",
            name(&row, &["workers"]),
            ": then ",
            row.word("limit"),
            " is the limit"
        ],
        None => "Throughput by workers".into(),
    };
    let second = (!busy.is_empty()).then_some("encoder busy");
    lines.extend(busy);
    Ok(Some(Plate {
        name: "worker_sweep",
        title,
        caption: text![
            "The whole job with a growing number of workers; with none every stage runs in turn. Full dots: \
                  throughput, the band from the slowest to the fastest sample. Rings: the share of the time that the \
                  encoder computed, on the right axis; near the top, it is the limit. The plateau is the fewest workers \
                  within a twentieth of the best.",
            absent(all.iter().copied(), &columns_and(&columns, "workers"))
        ],
        description: "Lines: images a second by number of workers, with the encoder's busy share on a second axis; the plateau is marked.",
        note: Text::default(),
        chart: Chart::Lines(Lines { x: "workers", y: "images per second", second, lines }),
    }))
}

fn columns_and(columns: &[&'static str], one_more: &'static str) -> Vec<&'static str> {
    columns.iter().copied().chain([one_more]).collect()
}

/// Formats "the rate, so many times the baseline".
fn rate_and_times(rate: &Num, times: Option<Num>) -> Text {
    match times {
        Some(times) => text![rate, " · ", times],
        None => rate.into(),
    }
}

/// The rows with another forward, which are no steps.
const OTHER_FORWARDS: [&str; 2] = ["preprocessing alone", "CPU only"];

/// What all improvements gave on one set of photos.
pub(crate) struct Gain<'a> {
    pub(crate) row: Row<'a>,
    pub(crate) times: Num,
    /// A single step that reached more, if one did.
    pub(crate) better: Option<(Row<'a>, Num)>,
}

/// Returns what all improvements together gave for each set of photos.
pub(crate) fn gains(table: &Table) -> Vec<Gain<'_>> {
    table.grouped("photos").into_iter().filter_map(gain).collect()
}

fn gain(rows: Vec<Row<'_>>) -> Option<Gain<'_>> {
    let is_step = |row: &Row<'_>| !OTHER_FORWARDS.contains(&row.text("change"));
    let steps: Vec<(Row<'_>, Num)> =
        rows.into_iter().filter(is_step).filter_map(|row| Some((row, row.number("times_baseline")?))).collect();
    let (row, times) = steps.last()?.clone();
    let best = least(steps, |(_, times)| -times.value)?;
    let better = (best.1.value > times.value).then_some(best);
    Some(Gain { row, times, better })
}

/// Formats which single step reached more than all of them together, if one did.
pub(crate) fn better_alone(gain: &Gain<'_>) -> Text {
    match &gain.better {
        Some((row, times)) => {
            text![
                " A run with fewer of them, up to ",
                row.word("change"),
                ", reached more on ",
                row.photos(),
                ": ",
                times,
                "."
            ]
        }
        None => Text::default(),
    }
}

pub(crate) fn headline(run: &Run) -> Plates {
    let Some(table) = run.table("headline.csv") else { return Ok(None) };
    let mut panels = Vec::new();
    for rows in table.grouped("photos") {
        let mut bars = Vec::new();
        for row in &rows {
            let label = row.word("change");
            if let Some(why) = row.not_run() {
                bars.push(not_run(label, why));
                continue;
            }
            let rate = row.need("images_per_second")?;
            let value = rate_and_times(&rate, row.number("times_baseline"));
            let ink = match row.text("change") {
                "baseline" => QUIET,
                "preprocessing alone" => OTHER,
                "CPU only" => READ,
                _ => FORWARD,
            };
            bars.push(whiskered(
                label,
                rate,
                both(row, "images_per_second_min", "images_per_second_max"),
                (ink, false),
                value,
            ));
        }
        panels.push(Panel { heading: rows[0].word("photos"), bars });
    }
    let gains = gains(table);
    let better = gains.iter().map(better_alone).fold(Text::default(), |all, one| all + one);
    let titles = gains.into_iter().map(|Gain { row, times, .. }| text![times, " on ", row.photos()]);
    let title = match Text::join(titles, ", ") {
        none if none.is_empty() => "One improvement after the other".into(),
        gains => text!["All together: ", gains],
    };
    Ok(Some(Plate {
        name: "headline",
        title,
        caption: text![
            "One improvement after the other, each added to those above it and measured end to end; the whisker \
             goes from the slowest to the fastest sample, the factor is that of the baseline. Preprocessing alone is the \
             combination with a forward that costs nothing; CPU only has the usual forward on the cores. A bar that ends \
             in a gap is longer than shown. Each set of photos has its own scale.",
            better
        ],
        description: "Bars: images a second of the whole job after each improvement, for each set of photos.",
        note: Text::default(),
        chart: Chart::Bars(Bars {
            keys: vec![
                key(QUIET, "baseline"),
                key(FORWARD, "improved"),
                key(OTHER, "preprocessing alone"),
                key(READ, "CPU only"),
            ],
            axis: "images per second",
            one_scale: false,
            panels,
        }),
    }))
}

pub(crate) fn extrapolation(run: &Run) -> Plates {
    let Some(table) = run.table("extrapolation.csv") else { return Ok(None) };
    let mut panels = Vec::new();
    for row in table.rows() {
        let rate = row.need("images_per_second")?;
        let sample = text!["sample, ", row.number("sample_images"), " images, ", row.number("samples"), " times"];
        let value = Text::from(&rate);
        let mut bars = vec![whiskered(sample, rate, both(&row, "low", "high"), (QUIET, false), value)];
        if let Some(long) = row.number("long_images_per_second") {
            let value = text![&long, if row.is("within", "yes") { ", within" } else { ", outside" }];
            bars.push(whiskered(
                text!["longer run, ", row.number("long_images"), " images"],
                long,
                None,
                (FORWARD, false),
                value,
            ));
        }
        let heading = text![
            row.word("photos"),
            ": ",
            row.number("target_images"),
            " images in ",
            row.number("hours"),
            " (",
            row.number("hours_low"),
            " to ",
            row.number("hours_high"),
            ")"
        ];
        panels.push(Panel { heading, bars });
    }
    let Some(row) = table.rows().next() else { return Ok(None) };
    Ok(Some(Plate {
        name: "extrapolation",
        title: text![row.number("target_images"), " images would take ", row.number("hours"), ", going by a sample"],
        caption: text![
            "What a sample says about many images: its mean rate, with the interval in which another run ought to lie \
             (nineteen times in twenty), and a longer run that puts it to the test. Takes for granted: ",
            row.word("assumptions"),
            "."
        ],
        description: "Bars: images a second of the sample with its prediction interval, and of a longer run.",
        note: Text::default(),
        chart: Chart::Bars(Bars { keys: Vec::new(), axis: "images per second", one_scale: false, panels }),
    }))
}

pub(crate) fn tuning(run: &Run) -> Plates {
    let Some(table) = run.table("tuning.csv") else { return Ok(None) };
    let mut panels = Vec::new();
    for rows in table.grouped("photos") {
        let columns = telling(&rows, &["workers", "threads", "batch", "prefetch", "readers"]);
        let bars = rows.iter().map(|row| trial(row, &columns)).collect::<Result<_, _>>()?;
        panels.push(Panel { heading: rows[0].word("photos"), bars });
    }
    let chosen = table.rows().find(|row| row.is("chosen", "yes"));
    let title = match chosen {
        Some(row) => text!["Tuning chose ", name(&row, &["workers", "threads"]), " and batch ", row.number("batch")],
        None => "Configurations that tuning tried".into(),
    };
    let why = chosen.map_or_else(Text::default, |row| text![" Why the chosen one: ", row.word("why"), "."]);
    Ok(Some(Plate {
        name: "tuning",
        title,
        caption: text![
            "Every configuration that was tried, in order, with a whisker from its slowest to its fastest sample.",
            why
        ],
        description: "Bars: images a second of every configuration that tuning tried; the chosen one stands out.",
        note: Text::default(),
        chart: Chart::Bars(Bars {
            keys: vec![key(QUIET, "tried"), key(READ, "chosen")],
            axis: "images per second",
            one_scale: false,
            panels,
        }),
    }))
}

fn trial(row: &Row<'_>, columns: &[&'static str]) -> Result<Bar, ReportError> {
    let rate = row.need("images_per_second")?;
    let ends = both(row, "images_per_second_min", "images_per_second_max");
    let (value, chosen) = (Text::from(&rate), row.is("chosen", "yes"));
    let bar = whiskered(name(row, columns), rate, ends, (if chosen { READ } else { QUIET }, false), value);
    Ok(Bar { bold: chosen, ..bar })
}
