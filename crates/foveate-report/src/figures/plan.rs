use super::plate::{Plate, name, simple};
use crate::chart::{Bars, ChartLine, Dot, LaneGroup, LineChart, Panel, Point, Scatter, Stretch, Timeline};
use crate::svg::{DECODE, FORWARD, Ink, OTHER, READ};
use crate::table::{ASSUMED, CsvTable, TableRow, group};
use crate::text::{Num, Text, text};

pub(super) fn timeline(table: &CsvTable) -> Option<Plate> {
    let mut scenarios = Vec::new();
    let mut busy = Vec::new();
    for rows in table.grouped(&["scenario"]) {
        let mut lanes = Vec::new();
        for rows in group(rows.iter().copied(), &["lane"]) {
            lanes.push((rows[0].word("lane"), rows.iter().filter_map(stretch).collect()));
        }
        lanes.sort_by_key(|(name, _)| order(&name.plain()));
        busy.extend(busy_share(&lanes));
        scenarios.push(LaneGroup { heading: rows[0].word("scenario"), lanes });
    }
    let stages = table.grouped(&["stage"]).into_iter().map(|rows| rows[0]);
    let mut keys: Vec<_> = stages.map(|row| (Ink::of_stage(row.text("stage")), row.word("stage"))).collect();
    keys.sort_by_key(|(ink, _)| ink.order());
    let title = match &busy[..] {
        [before, .., after] => text!["The encoder computes ", before, " of the time before, ", after, " after"],
        [share] => text!["The encoder computes ", share, " of the time"],
        [] => "Who works when".into(),
    };
    Plate::new(title, Text::default(), Timeline { keys, scenarios })
}

fn stretch(row: &TableRow<'_>) -> Option<Stretch> {
    let batch = row.number("batch").map_or_else(Text::default, |batch| text![", batch ", batch]);
    let start = row.number("start_ms")?;
    let end = row.number("end_ms")?;
    Some(Stretch { name: row.word("stage") + batch, start, end, ink: Ink::of_stage(row.text("stage")) })
}

/// Sorts lanes in the order of the data flow; the tenth worker follows the ninth.
fn order(lane: &str) -> (usize, usize, String) {
    let place = ["reader", "worker", "encoder", "writer"].iter().position(|place| lane.starts_with(place));
    (place.unwrap_or(usize::MAX), lane.len(), lane.to_owned())
}

/// Returns the share of the window in which the encoders compute. The window ends with the last stretch of any lane.
fn busy_share(lanes: &[(Text, Vec<Stretch>)]) -> Option<Num> {
    const HOW: &str = "ends − starts of the encoders' stretches, summed, ÷ the last end and the number of encoders";
    let ends = lanes.iter().flat_map(|(_, stretches)| stretches).map(|stretch| &stretch.end);
    let end = ends.max_by(|a, b| a.value.total_cmp(&b.value))?;
    let mut count = 0.0;
    let mut busy = 0.0;
    let mut fields = Vec::new();
    for (_, stretches) in lanes.iter().filter(|(name, _)| name.plain().starts_with("encoder")) {
        count += 1.0;
        for Stretch { start, end, .. } in stretches {
            busy += end.value - start.value;
            fields.extend([start.clone(), end.clone()]);
        }
    }
    fields.push(end.clone());
    let window = end.value * count;
    (window > 0.0).then(|| Num::derived(busy / window, "%", HOW, &fields))
}

/// The walls that a run may be expected to run into, and their colours.
const REGIMES: [(&str, Ink); 3] = [("storage", READ), ("transform", DECODE), ("compute", FORWARD)];

pub(super) fn accuracy(table: &CsvTable) -> Option<Plate> {
    let mut dots = Vec::new();
    for row in table.rows() {
        if let Some((x, y)) = row.number("measured").zip(row.number("predicted")) {
            let name = name(&row, &["photos", "decoder", "workers", "batch"]);
            let regime = REGIMES.iter().find(|(regime, _)| row.is("regime", regime));
            dots.push(Dot { name, ink: regime.map_or(OTHER, |(_, ink)| *ink), x, y });
        }
    }
    let title = match (median_error(table), errors(table).pop()) {
        (Some((error, runs)), Some(worst)) => {
            let how = "the error that is furthest from 0, without its sign";
            let worst = Num::derived(worst.value.abs(), "%", how, &[worst]);
            text!["The model is off by ", error, " in the median of ", runs, " runs, and by ", worst, " at worst"]
        }
        _ => "What the model predicted, and what came".into(),
    };
    let x = "measured, images per second";
    let y = "predicted, images per second";
    let keys = REGIMES.into_iter().filter(|(regime, _)| table.rows().any(|row| row.is("regime", regime)));
    let keys: Vec<(Ink, Text)> = keys.map(|(regime, ink)| (ink, regime.into())).collect();
    let more = if keys.is_empty() { Text::default() } else { " The colour is the expected wall.".into() };
    Plate::new(title, more, Scatter { keys, x, y, dots })
}

/// Returns the model's errors, the smallest first.
fn errors(table: &CsvTable) -> Vec<Num> {
    let mut errors: Vec<Num> = table.rows().filter_map(|row| row.number("error")).collect();
    errors.sort_by(|a, b| a.value.abs().total_cmp(&b.value.abs()));
    errors
}

/// Returns the median of errors without their signs, of which the smallest comes first.
pub(crate) fn median_of(errors: &[Num]) -> Option<Num> {
    let low = errors.get(errors.len().saturating_sub(1) / 2)?;
    let high = errors.get(errors.len() / 2)?;
    let median = f64::midpoint(low.value.abs(), high.value.abs());
    Some(Num::derived(median, "%", "median of the errors without their signs", errors))
}

/// Returns the median of the model's errors, and the number of runs.
pub(super) fn median_error(table: &CsvTable) -> Option<(Num, Num)> {
    let errors = errors(table);
    let error = median_of(&errors)?;
    Some((error, Num::derived(errors.len() as f64, "", "number of rows", &errors)))
}

pub(super) fn walls(table: &CsvTable) -> Option<Plate> {
    let walls = [
        ("storage", "storage_ms", READ),
        ("CPU", "cpu_ms", DECODE),
        ("bus", "bus_ms", Ink::of_stage("copy-in")),
        ("compute", "compute_ms", FORWARD),
    ];
    let crossover = table.rows().find(|row| row.is("crossover", "yes"));
    // Nothing is crossed if all batches run into the same wall.
    let same = table.grouped(&["wall"]).len() == 1;
    let mut lines = Vec::new();
    for (name, column, ink) in walls {
        let mut points = Vec::new();
        for row in table.rows() {
            let whole = row.number(column).filter(|whole| whole.value > 0.0);
            if let Some((x, whole)) = row.number("batch").zip(whole)
                && let Some(y) = whole.over(&x, whole.unit)
            {
                let is_wall = row.text("wall").eq_ignore_ascii_case(name);
                let note = if is_wall && row.is("crossover", "yes") && !same { "crossover" } else { "" };
                points.push(Point { x, y, band: None, note });
            }
        }
        let is_assumed = name == "compute" && table.rows().any(|row| row.has_assumed_forward());
        lines.push(ChartLine { name: name.into(), ink, on_second: false, is_assumed, points });
    }
    lines.retain(|line| !line.points.is_empty());
    let title = match crossover {
        Some(row) => {
            let known = walls.iter().find(|(name, ..)| row.text("wall").eq_ignore_ascii_case(name));
            let wall = known.map_or_else(|| row.word("wall"), |(name, ..)| (*name).into());
            if same {
                text!["At every batch, the wall is ", wall]
            } else {
                text!["From batch ", row.number("batch"), " on, the wall is ", wall]
            }
        }
        None => "Which wall a step runs into, by batch".into(),
    };
    Plate::new(title, Text::default(), LineChart { x: "batch", y: "milliseconds per image", second: "", lines })
}

pub(super) fn machines(table: &CsvTable) -> Option<Plate> {
    let bars = table.rows().filter_map(|row| {
        let bar = simple(row.word("machine"), row.number("money")?, READ);
        let bar = bar.and(row.number("hours")).and(row.number("kwh")).and(row.number("images_per_second"));
        Some(bar.and(row.text("accelerator").contains(ASSUMED).then(|| row.word("accelerator"))))
    });
    let panel = Panel { heading: Text::default(), bars: bars.collect() };
    let first = table.rows().next()?;
    let title = text![first.number("job_images"), " images cost least on ", first.word("machine")];
    Plate::new(title, Text::default(), Bars::new("money, in the currency of the price list", &[], vec![panel]))
}
