use super::plate::{Plate, Plates, key, name};
use crate::ReportError;
use crate::chart::{Chart, Dot, Key, Lanes, Line, Lines, Point, Scatter, Scenario, Stretch};
use crate::ink::{DECODE, FORWARD, Ink, READ};
use crate::run::Run;
use crate::shown::{Num, Text, text};
use crate::table::{Row, group};

pub(crate) fn timeline(run: &Run) -> Plates {
    let Some(table) = run.table("timeline.csv") else { return Ok(None) };
    let mut scenarios = Vec::new();
    let mut busy = Vec::new();
    for rows in table.grouped("scenario") {
        let mut lanes = Vec::new();
        for lane in group(rows.iter().copied(), |row| row.text("lane").to_owned()) {
            let stretches = lane.iter().map(stretch).collect::<Result<Vec<_>, _>>()?;
            lanes.push((lane[0].word("lane"), stretches));
        }
        lanes.sort_by_key(|(name, _)| order(&name.plain()));
        busy.extend(busy_share(&lanes));
        scenarios.push(Scenario { heading: rows[0].word("scenario"), lanes });
    }
    let mut stages = group(table.rows(), |row| row.text("stage").to_owned());
    stages.sort_by_key(|rows| Ink::of_stage(rows[0].text("stage")).order());
    let keys: Vec<Key> =
        stages.iter().map(|rows| key(Ink::of_stage(rows[0].text("stage")), rows[0].word("stage"))).collect();
    let title = match &busy[..] {
        [before, .., after] => text!["The encoder computes ", before, " of the time before, ", after, " after"],
        [share] => text!["The encoder computes ", share, " of the time"],
        [] => "Who works when".into(),
    };
    Ok(Some(Plate {
        name: "timeline",
        title,
        caption: "Traced in the middle of two real runs. Gaps in the encoder's lane are time that the encoder \
                  waits for data; full lanes above it are the workers that it waits for."
            .into(),
        description: "Lanes over time, one for each worker, the encoder and the writer: what each works on, before and after a change.",
        note: Text::default(),
        chart: Chart::Lanes(Lanes { keys, scenarios }),
    }))
}

fn stretch(row: &Row<'_>) -> Result<Stretch, ReportError> {
    let (start, end) = (row.need("start_ms")?, row.need("end_ms")?);
    let batch = row.number("batch").map_or_else(Text::default, |batch| text![", batch ", batch]);
    Ok(Stretch { name: row.word("stage") + batch, start, end, ink: Ink::of_stage(row.text("stage")) })
}

/// Sorts lanes in the order of the data flow; the tenth worker follows the ninth.
fn order(lane: &str) -> (Option<usize>, usize, String) {
    let place = ["reader", "worker", "encoder", "writer"].iter().position(|place| lane.starts_with(place));
    (place, lane.len(), lane.to_owned())
}

/// Returns the share of the window in which the encoders compute. The window ends with the last stretch of any lane.
fn busy_share(lanes: &[(Text, Vec<Stretch>)]) -> Option<Num> {
    let encoders: Vec<&Vec<Stretch>> =
        lanes.iter().filter(|(name, _)| name.plain().starts_with("encoder")).map(|(_, stretches)| stretches).collect();
    let all = || lanes.iter().flat_map(|(_, stretches)| stretches);
    let end = all().map(|stretch| &stretch.end).max_by(|a, b| a.value.total_cmp(&b.value))?;
    let stretches = || encoders.iter().copied().flatten();
    let busy: f64 = stretches().map(|stretch| stretch.end.value - stretch.start.value).sum();
    let window = end.value * encoders.len() as f64;
    let fields: Vec<Num> =
        stretches().flat_map(|stretch| [stretch.start.clone(), stretch.end.clone()]).chain([end.clone()]).collect();
    (window > 0.0).then(|| Num {
        value: busy / window,
        unit: "%",
        how: "ends − starts of the encoders' stretches, summed, ÷ the last end and the number of encoders",
        ..Num::sum(&fields)
    })
}

pub(crate) fn accuracy(run: &Run) -> Plates {
    let Some(table) = run.table("plan.csv") else { return Ok(None) };
    let (mut dots, mut errors) = (Vec::new(), Vec::new());
    for row in table.rows() {
        let label = || name(&row, &["photos", "decoder", "workers", "batch"]);
        let measured = row.need("measured")?;
        dots.push(Dot { name: label(), x: measured, y: row.need("predicted")?, ink: FORWARD, hollow: false });
        errors.extend(row.number("error").map(Num::size));
    }
    let runs = Num::count(&errors);
    let keys = vec![key(FORWARD, "analytic model")];
    const HOW: &str = "median of the errors without their signs";
    let title = match Num::median(errors, HOW) {
        Some(error) => text!["The model is off by ", error, " (median of ", runs, " runs)"],
        None => "What the model predicted, and what came".into(),
    };
    Ok(Some(Plate {
        name: "plan",
        title,
        caption:
            "Each dot is a real run: what it did, and what the model fitted to a profile had predicted for it. On \
                  the line both are the same; the band is a tenth to either side. Both axes are logarithmic."
                .into(),
        description: "Dots: predicted against measured images a second for runs of different configurations, with a band of ten percent.",
        note: Text::default(),
        chart: Chart::Scatter(Scatter {
            keys,
            x: "measured, images per second",
            y: "predicted, images per second",
            dots,
        }),
    }))
}

pub(crate) fn walls(run: &Run) -> Plates {
    let Some(table) = run.table("batch_plan.csv") else { return Ok(None) };
    let crossover = table.rows().find(|row| row.is("crossover", "yes"));
    let mut lines = Vec::new();
    for (name, column, ink) in
        [("storage", "storage_ms", READ), ("CPU", "cpu_ms", DECODE), ("compute", "compute_ms", FORWARD)]
    {
        let mut points = Vec::new();
        for row in table.rows() {
            let slowest = row.text("wall").eq_ignore_ascii_case(name);
            let note = if slowest && row.is("crossover", "yes") { "crossover".into() } else { Text::default() };
            let (batch, whole) = (row.need("batch")?, row.need(column)?);
            let Some(each) = whole.over(&batch) else { continue };
            points.push(Point { x: batch, y: each, band: None, note });
        }
        lines.push(Line { name: name.into(), ink, on_second: false, points });
    }
    let title = match crossover {
        Some(row) => text!["From batch ", row.number("batch"), " on, the wall is ", row.word("wall")],
        None => "Which wall a step runs into, by batch".into(),
    };
    Ok(Some(Plate {
        name: "walls",
        title,
        caption: "The three walls of the analytic model: how long storage, the CPU and the encoder each need for a batch, \
                  per image. A step takes as long as the slowest of them: while that is compute, the encoder is never idle."
            .into(),
        description: "Lines: milliseconds per image that storage, CPU and compute each need, by batch size; the crossover is marked.",
        note: Text::default(),
        chart: Chart::Lines(Lines { x: "batch", y: "milliseconds per image", second: None, lines }),
    }))
}
