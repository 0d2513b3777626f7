use super::plate::{Plate, Plates, both, faint_key, key, least, name, not_run, telling, whiskered};
use crate::ReportError;
use crate::chart::{Bar, Bars, Chart, Panel};
use crate::ink::{DECODE, FORWARD, Ink, RESIZE, SERIALIZE};
use crate::run::Run;
use crate::shown::{Num, Text, text};
use crate::table::Row;

/// Returns a bar of a row's median, with a whisker up to its p90.
fn times_of(row: &Row<'_>, label: Text, look: (Ink, bool)) -> Result<Bar, ReportError> {
    if let Some(why) = row.not_run() {
        return Ok(not_run(label, why));
    }
    let p50 = row.need("p50_ms")?;
    let whisker = row.number("p90_ms").map(|p90| (p50.clone(), p90));
    let value = Text::from(&p50);
    Ok(whiskered(label, p50, whisker, look, value))
}

/// Returns the fastest and the slowest row, by median.
fn extremes<'a>(rows: &[Row<'a>]) -> Option<((Row<'a>, Num), (Row<'a>, Num))> {
    let timed = || rows.iter().filter_map(|row| Some((*row, row.number("p50_ms")?)));
    let fastest = least(timed(), |(_, p50)| p50.value)?;
    let slowest = least(timed(), |(_, p50)| -p50.value)?;
    (fastest.1.value < slowest.1.value).then_some((fastest, slowest))
}

/// Formats "A does in half the time what B does", if there are two.
fn comparison(rows: &[Row<'_>], column: &'static str, verb: &str, set: Text) -> Option<Text> {
    let ((fastest, quick), (slowest, slow)) = extremes(rows)?;
    let times = slow.times(&quick)?;
    Some(text![fastest.word(column), verb, times, " as fast as ", slowest.word(column), set])
}

pub(crate) fn decoders(run: &Run) -> Plates {
    let Some(table) = run.table("decoders.csv") else { return Ok(None) };
    let mut panels = Vec::new();
    for rows in table.grouped("photos") {
        let bar = |row: &Row<'_>| {
            let fast = row.is("decode_scale", "fast");
            let label = row.word("decoder") + if fast { ", fast" } else { "" };
            times_of(row, label, (DECODE, fast))
        };
        panels.push(Panel { heading: rows[0].word("photos"), bars: rows.iter().map(bar).collect::<Result<_, _>>()? });
    }
    let first = table.grouped("photos").into_iter().next().unwrap_or_default();
    let exact: Vec<Row<'_>> = first.into_iter().filter(|row| row.is("decode_scale", "exact")).collect();
    let set = exact.first().map_or_else(Text::default, |row| text![" on ", row.photos()]);
    let title = comparison(&exact, "decoder", " decodes ", set).unwrap_or_else(|| "What decoding a photo costs".into());
    Ok(Some(Plate {
        name: "decoders",
        title,
        caption: "From bytes in memory to pixels in memory on one thread: the median, with a whisker up to where \
                  nine in ten are faster. Fast stands for a decoder that may shrink while it decodes. Each set of photos has its \
                  own scale."
            .into(),
        description: "Bars: milliseconds to decode one photo, for each decoder, exact and fast, and each set of photos.",
        note: Text::default(),
        chart: Chart::Bars(Bars {
            keys: vec![key(DECODE, "exact"), faint_key(DECODE, "fast")],
            axis: "milliseconds per photo",
            one_scale: false,
            panels,
        }),
    }))
}

pub(crate) fn resizers(run: &Run) -> Plates {
    let Some(table) = run.table("resizers.csv") else { return Ok(None) };
    let mut panels = Vec::new();
    for rows in table.grouped("photos") {
        let columns = telling(&rows, &["resizer", "recipe"]);
        let bar = |row: &Row<'_>| times_of(row, name(row, &columns), (RESIZE, row.is("recipe", "squash")));
        panels.push(Panel { heading: rows[0].word("photos"), bars: rows.iter().map(bar).collect::<Result<_, _>>()? });
    }
    let first = table.grouped("photos").into_iter().next().unwrap_or_default();
    let recipe = first.first().map_or("", |row| row.text("recipe"));
    let same: Vec<Row<'_>> = first.iter().copied().filter(|row| row.is("recipe", recipe)).collect();
    let set = same.first().map_or_else(Text::default, |row| text![" (", row.photos(), ", ", row.word("recipe"), ")"]);
    let title = comparison(&same, "resizer", " resizes ", set).unwrap_or_else(|| "What resizing a photo costs".into());
    let mut keys = vec![key(RESIZE, "recipe hf")];
    if table.rows().any(|row| row.is("recipe", "squash")) {
        keys.push(faint_key(RESIZE, "recipe squash"));
    }
    Ok(Some(Plate {
        name: "resizers",
        title,
        caption: "From decoded pixels to the model's input on one thread: the median, with a whisker up to where \
                  nine in ten are faster. The two recipes give different vectors: compare within one."
            .into(),
        description: "Bars: milliseconds to resize one photo, for each resizer, recipe and set of photos.",
        note: Text::default(),
        chart: Chart::Bars(Bars { keys, axis: "milliseconds per photo", one_scale: false, panels }),
    }))
}

pub(crate) fn forward(run: &Run) -> Plates {
    let Some(table) = run.table("forward.csv") else { return Ok(None) };
    let mut panels = Vec::new();
    let mut title = None;
    for rows in table.grouped("batch") {
        let columns = telling(&rows, &["encoder", "dtype", "threads"]);
        let columns =
            if columns.contains(&"dtype") { columns } else { [&columns[..1], &["dtype"], &columns[1..]].concat() };
        let mut bars = Vec::new();
        for row in &rows {
            let mut bar = times_of(row, name(row, &columns), (FORWARD, !row.is("dtype", "f32")))?;
            if let (false, Some(rate)) = (bar.parts.is_empty(), row.number("images_per_second")) {
                bar.value = bar.value + " · " + rate;
            }
            bars.push(bar);
        }
        if let Some(((fastest, quick), (slowest, slow))) = title.is_none().then(|| extremes(&rows)).flatten() {
            title = slow.times(&quick).map(|times| {
                let pair = ["encoder", "dtype"];
                text![
                    name(&fastest, &pair),
                    " is ",
                    times,
                    " as fast as ",
                    name(&slowest, &pair),
                    " at batch ",
                    fastest.word("batch")
                ]
            });
        }
        panels.push(Panel { heading: text!["Batch ", rows[0].word("batch")], bars });
    }
    Ok(Some(Plate {
        name: "forward",
        title: title.unwrap_or_else(|| "What the forward of a batch costs".into()),
        caption: "The encoder alone on one batch, complete at the end of each call: the median, with a whisker up to \
                  where nine in ten are faster, and images a second."
            .into(),
        description: "Bars: milliseconds for the forward of a batch, for each runtime and number type.",
        note: Text::default(),
        chart: Chart::Bars(Bars {
            keys: vec![key(FORWARD, "float, full length"), faint_key(FORWARD, "shorter types")],
            axis: "milliseconds per batch",
            one_scale: false,
            panels,
        }),
    }))
}

pub(crate) fn sinks(run: &Run) -> Plates {
    let Some(table) = run.table("sinks.csv") else { return Ok(None) };
    let rows: Vec<Row<'_>> = table.rows().collect();
    let mut bars = Vec::new();
    for row in &rows {
        let label = name(row, &["sink", "variant"]);
        if let Some(why) = row.not_run() {
            bars.push(not_run(label, why));
            continue;
        }
        let rate = row.need("rows_per_second")?;
        let value = Text::join([Text::from(&rate), text![row.number("bytes_per_row"), " per row"]], " · ");
        let ends = both(row, "rows_per_second_min", "rows_per_second_max");
        bars.push(whiskered(label, rate, ends, (SERIALIZE, false), value));
    }
    let rated = || rows.iter().filter_map(|row| Some((*row, row.number("rows_per_second")?)));
    let title = match (least(rated(), |(_, rate)| -rate.value), least(rated(), |(_, rate)| rate.value)) {
        (Some((_, most)), Some((slowest, rate))) if rate.value < most.value => {
            text!["Even ", name(&slowest, &["sink", "variant"]), ", the slowest output, takes ", rate]
        }
        _ => "How fast outputs take vectors".into(),
    };
    let first = rows
        .first()
        .map_or_else(Text::default, |row| text![row.number("rows"), " vectors of ", row.number("dim"), " numbers, "]);
    Ok(Some(Plate {
        name: "sinks",
        title,
        caption: first
            + "from the first row to the finished, durable output: the median, with a whisker from the slowest \
                          to the fastest sample, and the bytes that a row takes.",
        description: "Bars: rows a second that each output takes, with the bytes a row takes in it.",
        note: Text::default(),
        chart: Chart::Bars(Bars {
            keys: Vec::new(),
            axis: "rows per second",
            one_scale: true,
            panels: vec![Panel { heading: Text::default(), bars }],
        }),
    }))
}
